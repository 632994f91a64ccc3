# The worker's image: the versions of requirements.lock, the default model inside, no root at run time.
FROM python:3.11.13-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY schemas schemas
COPY streams streams
COPY agents agents
# The lock names the versions and also development tools; as constraints it pins what is installed and installs nothing more.
RUN grep -oE '^[A-Za-z0-9][A-Za-z0-9._-]*(\[[a-z,]+\])?==[^ ;]+' requirements.lock | sed -E 's/\[[a-z,]+\]//' > constraints.txt \
    && python -m venv /opt/answerby \
    && /opt/answerby/bin/pip install --no-cache-dir --constraint constraints.txt .

FROM python:3.11.13-slim-bookworm
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/answerby answerby
COPY --from=build /opt/answerby /opt/answerby
ENV PATH=/opt/answerby/bin:$PATH ANSWERBY_HOME=/var/lib/answerby/home PYTHONUNBUFFERED=1
USER answerby
WORKDIR /var/lib/answerby
RUN answerby models pull smollm2-135m
EXPOSE 9108
ENTRYPOINT ["answerby"]
CMD ["worker"]
