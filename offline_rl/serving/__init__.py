"""The server: an exported policy behind HTTP, for Kubernetes and for any client with JSON."""
