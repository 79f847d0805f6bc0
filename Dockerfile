# bitgnn on the CPU: docker build -t bitgnn . && docker run --rm -v "$PWD:/work" bitgnn
FROM python:3.12-slim

RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*

# torch without CUDA, to build and to run.
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu BITGNN_BUILD=cpu
# What the build writes beside the sources is dropped with the mount.
RUN --mount=type=bind,target=/source,rw --mount=type=cache,target=/root/.cache/pip pip install /source

WORKDIR /work
CMD ["bitgnn", "demo"]
