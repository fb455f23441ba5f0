# A dedicated server in a container; docs/how-to/containers.md explains how to run it. `.ci/container` runs these steps without a Docker daemon.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# The image has gcc, which builds SQLite and the C code of ring.
# Version, date and commit for `bcnet --version`. Without this argument, only the version.
ARG BCNET_VERSION
RUN cargo build --release --locked --package bcnet && .ci/third-party >THIRD-PARTY.txt

FROM debian:bookworm-slim
COPY --from=build /src/target/release/bcnet /usr/bin/
COPY --from=build /src/THIRD-PARTY.txt /usr/share/doc/bcnet/
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/bcnet/
RUN install -d -o 10001 -g 10001 -m 750 /data
USER 10001:10001
# The only writable directory: configuration, bans, logs, captures and the socket of `bcnet ctl`.
WORKDIR /data
VOLUME /data
ENV BCNET_CONTROL=/data/bcnet.sock
EXPOSE 22101/udp
STOPSIGNAL SIGTERM
# A client joins and leaves. A full game is healthy, too.
HEALTHCHECK --interval=5m --timeout=20s --start-period=5s --retries=2 CMD \
    output=$(bcnet join "127.0.0.1:${BCNET_PORT:-22101}" --check ${BCNET_PASSWORD:+--password "$BCNET_PASSWORD"} 2>&1) \
    || case $output in *'is full'*) ;; *) echo "$output"; exit 1 ;; esac
ENTRYPOINT ["bcnet"]
CMD ["serve"]
