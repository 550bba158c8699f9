"""Applications of microservices whose truth is known: the system that autoscalers are judged in."""
