# SteadyArm's service: `docker build -t steadyarm .`; with PostgreSQL beside it: compose.yaml.
# docs/operate/container.md says how to run it; tests/e2e/container runs every command of these files.

FROM python:3.12-slim-bookworm AS build
WORKDIR /build
RUN python -m venv /opt/steadyarm
ENV PATH=/opt/steadyarm/bin:$PATH
COPY . .
RUN pip install --no-cache-dir --disable-pip-version-check \
    --constraint constraints.txt '.[service,postgres]'

# Only the environment goes on; sources and what pip left stay behind.
FROM python:3.12-slim-bookworm
RUN useradd --uid 10001 --create-home steadyarm \
    && install --directory --owner steadyarm /data
COPY --from=build /opt/steadyarm /opt/steadyarm
ENV PATH=/opt/steadyarm/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/home/steadyarm/.cache/numba \
    STEADYARM_HOST=0.0.0.0 \
    STEADYARM_PORT=8000 \
    STEADYARM_STORAGE=sqlite:////data/steadyarm.db
USER 10001
# Numerical code is compiled for the processor that builds the image. On another kind of processor the
# service compiles it again, in the background.
RUN ["python", "-m", "steadyarm.service.monitoring"]
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"STEADYARM_PORT\"]}/readyz', timeout=4)"]
CMD ["steadyarm", "serve"]
