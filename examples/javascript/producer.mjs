// Sends one event as JSON with kafkajs and waits for its answer: npm install && node producer.mjs "What is tea made of?" [bootstrap]
import { randomUUID } from "node:crypto";
import { Kafka, logLevel } from "kafkajs";

const [text = "What is tea made of?", bootstrap = "127.0.0.1:9092"] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "example", brokers: [bootstrap], logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId: `example-${randomUUID()}` });
const producer = kafka.producer({ idempotent: true });

const event = {
  event_id: randomUUID(),
  session_id: "example-js",
  text,
  occurred_at_ms: Date.now(),
  deadline_ms: 1500,
  answer: { max_tokens: 32 },
};

await consumer.connect();
await consumer.subscribe({ topic: "responses" });
const answered = new Promise((resolve) => {
  consumer.run({
    eachMessage: async ({ message }) => {
      if (message.value[0] !== 0x7b) return; // someone else's, in MessagePack
      const answer = JSON.parse(message.value.toString());
      if (answer.event_id === event.event_id) resolve(answer);
    },
  });
});
await new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve)); // read before anything is sent

await producer.connect();
event.occurred_at_ms = Date.now();
await producer.send({
  topic: "interactions",
  messages: [{ key: event.session_id, value: JSON.stringify(event), headers: { "content-type": "application/json" } }],
});
const answer = await answered;
console.log(`${answer.text} (${answer.outcome}, ${Math.round(answer.latency_ms.total)} ms)`);
await Promise.all([producer.disconnect(), consumer.disconnect()]);
