"""The server: an exported policy behind HTTP, for Kubernetes and for anybody who speaks JSON."""
