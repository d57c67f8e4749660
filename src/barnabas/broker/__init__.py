"""The broker: one process that serves Kafka's APIs.

    node/             starts and stops a node: broker, controller or both
    handlers/         the handlers of the APIs, by family
    config/           the configuration of a node: definitions, values, changes at run time
    publishers/       applies metadata changes to the parts of a broker
    to_controller/    what a broker sends to the controller: registration, heartbeats, forwarded requests

Start with `node/kafka_raft_server.py`, then `node/broker_server.py`.
"""
