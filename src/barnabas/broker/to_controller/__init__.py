"""What a broker sends to the active controller.

    node_to_controller_channel    connections to the controller; node_to_controller_request_thread: its thread
    broker_lifecycle_manager      registration, heartbeats and controlled shutdown
    forwarding_manager            client requests that the controller must process
    alter_partition_manager       ISR changes; assignments_manager: directories of replicas
    auto_topic_creation_manager   topics that clients or coordinators need

Start with `node_to_controller_channel`.
"""
