# bitgnn on the CPU: docker build -t bitgnn . && docker run --rm -v "$PWD:/work" bitgnn
FROM python:3.12-slim

RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*

# torch without CUDA, to build and to run.
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu BITGNN_BUILD=cpu
COPY . /source
RUN --mount=type=cache,target=/root/.cache/pip pip install /source && rm -rf /source

WORKDIR /work
CMD ["bitgnn", "demo"]
