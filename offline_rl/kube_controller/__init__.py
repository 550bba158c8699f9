"""`schedtwin orchestrate`: the orchestrator of a bundle as a Kubernetes controller. Needs NumPy and the client.

cluster.py      what the controller reads of a cluster and writes to it, and what can go wrong
kubernetes.py   that cluster through the official Python client
loads.py        what access points and nodes report of their loads
frame.py        the changes of a frame: from counts to writes that can be made, all of them or none
leading.py      one of several controllers leads, by a Lease that also holds the pause switch
kube_lease.py   that Lease without the official client, for `schedtwin autoscale`
recording.py    the decision log in this project's own tables, and the metrics
controller.py   frame by frame
"""
