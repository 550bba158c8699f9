"""The placement problem: which node an arriving request is offered to."""
