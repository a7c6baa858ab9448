# docker build -f docker/cpu.Dockerfile -t bridge . && docker run --rm -v "$PWD/out:/bridge/out" bridge
# Other versions of docker/matrix.toml: --build-arg PYTHON=3.12 --build-arg WITH="torch==2.12.*"
ARG PYTHON=3.11
FROM python:${PYTHON}-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*
WORKDIR /bridge
COPY . .
ARG WITH=""
RUN for part in $WITH; do echo "$part"; done > constraints.txt
ENV PIP_CONSTRAINT=/bridge/constraints.txt
RUN make test
CMD ["make", "demo"]
