# The image is one static binary and the certificates of public authorities. `make image` builds both into dist/ and hands
# that folder to the builder, so that no base image, compiler or network is needed here.
FROM scratch
LABEL org.opencontainers.image.title="libretto" \
      org.opencontainers.image.description="Runs Kubernetes operators that are written as one YAML document" \
      org.opencontainers.image.source="https://github.com/libretto-dev/libretto" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY libretto /libretto
USER 65532:65532
ENTRYPOINT ["/libretto"]
CMD ["manager"]
