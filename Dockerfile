# The image that installs the plugins on Linux nodes: nothing but what
# "scripts/image image" has put together. See docs/install.md.
FROM scratch
COPY image/ /
ENV PATH=/opt/cni/bin
CMD ["/opt/cni/bin/install"]
