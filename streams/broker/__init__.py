"""The embedded Apache Kafka: a real broker as a child process, for machines that have none."""
