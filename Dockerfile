# docker build -t multiverso . && docker run --rm --shm-size=1g multiverso multiverso demo -np 4
FROM python:3.12-bookworm AS build
COPY . /source
RUN pip wheel --no-deps --wheel-dir /wheels /source

# This image has no compiler.
FROM python:3.12-slim-bookworm
ENV PIP_NO_CACHE_DIR=1
COPY --from=build /wheels /wheels
RUN pip install "$(echo /wheels/*.whl)[mpich,examples]"
CMD ["multiverso", "doctor"]
