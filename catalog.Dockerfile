# The catalogue, and what serves it to OLM. `make catalog-image` puts both into a folder: static programs and no base image.
FROM scratch
LABEL operators.operatorframework.io.index.configs.v1=/configs \
      org.opencontainers.image.title="libretto-catalog" \
      org.opencontainers.image.source="https://github.com/libretto-dev/libretto" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY opm /bin/opm
COPY grpc_health_probe /bin/grpc_health_probe
COPY configs /configs
COPY --chown=1001:0 tmp /tmp
ENV PATH=/bin
USER 1001:0
ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs", "--cache-dir=/tmp/cache", "--cache-enforce-integrity=false", "--pprof-addr="]
