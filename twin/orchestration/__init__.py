"""Orchestration: requests are dispatched in every slot, replicas of services move once a frame (KaiS, KMPS).

An `EdgeCloud` says what is public of a cluster, a `Chance` is all that is by chance in it, of the truth or of a twin;
the books of queues, replicas, nodes and frames are kept here, for both alike. Three problems read the same books:

    slot_problem   (slots)   one seat an access point decides every slot where the request in hand goes
    frame_problem  (frames)  H seats decide every frame what changes; a frozen `Dispatch` plays the slots between
    joint_problem  (joint)   both as groups of seats, "dispatch" and "orchestrate", with clocks of their own

Shapes are [..., seats, *streams]; S services (0 is "unknown"), N nodes, A access points, H changes a frame.

Dispatch. Observation: `twin.placement.types.Observation` with node [features, N, A, *streams] (`slots.
SLOT_NODE_FEATURES`; nodes of other sites as the mean of their site) and request [features, A, *streams]
(`request_features(cluster)`, then `slots.SLOT_REQUEST_FEATURES`). Action: int32 node [A, *streams]. Legal [N, A,
*streams]: up, with a replica of the service and a place; with `SlotConfig.only_where_room` a replica and a core that
nothing there takes first (context filtering, KaiS eq. 4-5). A seat without a request, or whose request has no legal
node, is inactive; the request stays in its queue. Reward: 1 where the answer is back within the deadline, credited to
its decision; requests dropped in the queue earn nothing (`SlotState.view.counts` counts them).

Orchestration. Observation: `frames.FrameObservation` with node [5, N, H, *streams], service [4, S, H, *streams], hosted
[3, S, N, H, *streams], queued [S, A, H, *streams] and seat [1, H, H, *streams], loads being means over the frame that
has ended; which node belongs to which access point is `cluster.site_of_node` against `EdgeCloud.seat_site`. Action:
`frame_state.Scaling(node, change)`, int32 [H, *streams]: 0 nothing, w one replica of service w more, S - 1 + w one
less. Legal: a mask of nodes [N, H, *streams], and `Given` that choice one of changes [2 S - 1, N, H, *streams]. A rule
reads the state in plain units, `(key, FrameState) -> Scaling`. Reward: `worth(FrameOutcome) / H` when the frame ends
(`frames.on_time_share`, `frames.few_waiting`); `FrameOutcome` holds what a frame brought.

Clocks are settings: `SlotConfig.slot_s` (.25 s), `slots_per_promotion` (the long slot, 2 s), `slots_per_frame` (25 s).
"""
