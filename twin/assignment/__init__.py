"""The assignment problem: Z requests at once, each sent to one of Q edges so that the last answer comes soonest."""
