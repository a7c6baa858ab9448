# docker build -f docker/cuda.Dockerfile -t bridge-cuda . && docker run --rm --gpus all bridge-cuda
# A build sees no GPU, so the tests run when the container does.
ARG CUDA=13.0.1
FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04
RUN apt-get update && apt-get install -y --no-install-recommends g++ make python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /bridge
COPY . .
ARG WITH=""
RUN for part in $WITH; do echo "$part"; done > constraints.txt
ENV PIP_CONSTRAINT=/bridge/constraints.txt
CMD ["sh", "-c", "make test && make demo"]
