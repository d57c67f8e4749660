"""What well-known dashboards ask for: the selectors of their panels, without the labels that a scraper adds.

Read from Strimzi's ``strimzi-kafka``, ``strimzi-kraft`` and ``strimzi-kafka-exporter``, Confluent's
``kafka-cluster-kraft``, ``kafka-quotas`` and ``kraft`` of jmx-monitoring-stacks, and the overview of kafka_exporter.
"""

from __future__ import annotations

from typing import Final

STRIMZI_KAFKA: Final = """
kafka_server_replicamanager_leadercount
kafka_controller_kafkacontroller_activecontrollercount
kafka_controller_controllerstats_uncleanleaderelections_total
kafka_server_replicamanager_partitioncount
kafka_server_replicamanager_underreplicatedpartitions
kafka_cluster_partition_atminisr
kafka_cluster_partition_underminisr
kafka_controller_kafkacontroller_offlinepartitionscount
container_memory_usage_bytes
container_cpu_usage_seconds_total
kubelet_volume_stats_available_bytes
process_open_fds
jvm_memory_used_bytes
jvm_gc_collection_seconds_sum
jvm_gc_collection_seconds_count
jvm_threads_current
kafka_server_brokertopicmetrics_bytesin_total{topic=~"orders",topic!=""}
kafka_server_brokertopicmetrics_bytesout_total{topic=~"orders",topic!=""}
kafka_server_brokertopicmetrics_messagesin_total{topic=~"orders",topic!=""}
kafka_server_brokertopicmetrics_totalproducerequests_total{topic=~"orders",topic!=""}
kafka_server_brokertopicmetrics_failedproducerequests_total{topic=~"orders",topic!=""}
kafka_server_brokertopicmetrics_totalfetchrequests_total{topic=~"orders",topic!=""}
kafka_server_brokertopicmetrics_failedfetchrequests_total{topic=~"orders",topic!=""}
kafka_network_socketserver_networkprocessoravgidle_percent
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
kafka_server_kafkaserver_linux_disk_write_bytes
kafka_server_kafkaserver_linux_disk_read_bytes
kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}
kafka_log_log_size{topic=~"orders",partition=~"0"}
"""

STRIMZI_KRAFT: Final = """
container_memory_usage_bytes
container_cpu_usage_seconds_total
kubelet_volume_stats_available_bytes
process_open_fds
jvm_memory_used_bytes
jvm_gc_collection_seconds_sum
jvm_gc_collection_seconds_count
jvm_threads_current
kafka_server_raftmetrics_append_records_rate
kafka_server_raftmetrics_fetch_records_rate
kafka_server_raftmetrics_commit_latency_avg
kafka_server_raftmetrics_current_state{current_state="leader"}
kafka_server_raftmetrics_current_leader
kafka_server_raftmetrics_current_vote
kafka_server_raftmetrics_current_epoch
kafka_server_raftchannelmetrics_incoming_byte_total
kafka_server_raftchannelmetrics_outgoing_byte_total
kafka_server_raftchannelmetrics_request_total
kafka_server_raftchannelmetrics_response_total
kafka_server_raftmetrics_high_watermark
kafka_server_raftmetrics_log_end_offset
"""

STRIMZI_KAFKA_EXPORTER: Final = """
kafka_topic_partitions{topic=~"orders"}
kafka_topic_partition_replicas{topic=~"orders"}
kafka_topic_partition_in_sync_replica{topic=~"orders"}
kafka_topic_partition_under_replicated_partition{topic=~"orders"}
kafka_cluster_partition_atminisr{topic=~"orders"}
kafka_cluster_partition_underminisr{topic=~"orders"}
kafka_topic_partition_leader_is_preferred{topic=~"orders"}
kafka_topic_partition_current_offset{topic=~"orders"}
kafka_topic_partition_oldest_offset{topic=~"orders"}
kafka_consumergroup_current_offset{consumergroup=~"readers",topic=~"orders",partition="0"}
kafka_consumergroup_lag{consumergroup=~"readers",topic=~"orders",partition="0"}
"""

KAFKA_EXPORTER: Final = """
kafka_topic_partition_current_offset{topic=~"orders",topic!="__consumer_offsets",topic!="--kafka"}
kafka_consumergroup_lag{topic=~"orders",consumergroup!=""}
kafka_consumergroup_current_offset{topic=~"orders",consumergroup!=""}
kafka_topic_partitions{topic=~"orders"}
"""

_QUANTILES: Final = "\n".join(
    f'kafka_network_requestmetrics_{time}timems{{quantile=~"0.99",request="{request}"}}'
    for request in ("Produce", "Fetch", "FetchFollower")
    for time in ("requestqueue", "local", "remote", "responsequeue", "responsesend")
)

CONFLUENT_CLUSTER: Final = f"""
kafka_controller_kafkacontroller_activecontrollercount
kafka_server_replicamanager_leadercount
kafka_server_replicamanager_partitioncount
kafka_controller_kafkacontroller_preferredreplicaimbalancecount
kafka_controller_controllerstats_uncleanleaderelectionspersec
kafka_server_replicamanager_underreplicatedpartitions
kafka_cluster_partition_underminisr
kafka_controller_kafkacontroller_offlinepartitionscount
kafka_server_replicamanager_straypartitionscount
kafka_server_replicamanager_straypartitionsmisclassifiedcount
kafka_server_replicamanager_straypartitionstotalsize
kafka_server_brokertopicmetrics_bytesinpersec{{topic!=""}}
kafka_server_brokertopicmetrics_bytesoutpersec{{topic!=""}}
kafka_server_brokertopicmetrics_messagesinpersec{{topic!=""}}
kafka_network_requestmetrics_requestspersec
kafka_network_requestmetrics_requestspersec{{request="Produce"}}
kafka_network_requestmetrics_requestspersec{{request="FetchConsumer"}}
kafka_network_requestmetrics_requestspersec{{request="Fetch"}}
kafka_network_requestmetrics_requestspersec{{request="OffsetCommit"}}
kafka_network_requestmetrics_requestspersec{{request="Metadata"}}
kafka_network_requestmetrics_errorspersec{{error!="NONE"}}
process_cpu_seconds_total
jvm_memory_used_bytes
jvm_memory_bytes_max
jvm_gc_collection_seconds_sum
kafka_server_kafkaserver_linux_disk_read_bytes
kafka_server_kafkaserver_linux_disk_write_bytes
kafka_network_requestchannel_requestqueuesize
kafka_network_requestchannel_responsequeuesize
kafka_network_socketserver_networkprocessoravgidlepercent
kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate
kafka_server_replicamanager_isrshrinkspersec
kafka_server_replicamanager_isrexpandspersec
kafka_log_log_size
{_QUANTILES}
kafka_server_fetchsessioncache_numincrementalfetchsessions
kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec
kafka_network_requestmetrics_requestqueuetimems{{quantile=~"0.99",request="Metadata"}}
kafka_network_requestmetrics_totaltimems{{quantile=~"0.99",request="Metadata"}}
kafka_server_replicafetchermanager_minfetchrate{{clientid="Replica"}}
kafka_server_replicafetchermanager_maxlag{{clientid="Replica"}}
kafka_server_socketservermetrics_connection_count{{listener!=""}}
kafka_server_socketservermetrics_connection_creation_rate{{listener!=""}}
kafka_server_socketservermetrics_connection_close_rate{{listener!=""}}
kafka_network_acceptor_acceptorblockedpercent
kafka_server_socketservermetrics_connections{{client_software_name!="",client_software_version!=""}}
kafka_coordinator_group_groupmetadatamanager_numgroups
kafka_coordinator_group_groupmetadatamanager_numgroupsstable
kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance
kafka_coordinator_group_groupmetadatamanager_numgroupsdead
kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance
kafka_coordinator_group_groupmetadatamanager_numgroupsempty
kafka_server_brokertopicmetrics_producemessageconversionspersec
kafka_server_brokertopicmetrics_fetchmessageconversionspersec
kafka_log_log_tiersize
kafka_tier_tasks_archive_tierarchiver_bytespersec
kafka_tier_tasks_archive_tierarchiver_retriespersec
kafka_tier_tasks_archive_tierarchiver_totallag
kafka_tier_tasks_tiertasks_numpartitionsinerror
kafka_server_kafkaserver_brokerstate
"""

CONFLUENT_QUOTAS: Final = """
kafka_server_produce_byte_rate{user=~".*",client_id=~"billing"}
kafka_server_fetch_byte_rate{user=~".*",client_id=~"billing"}
kafka_server_request_request_time{user=~".*",client_id=~"billing"}
kafka_server_produce_throttle_time{user=~".*",client_id=~"billing"}
kafka_server_fetch_throttle_time{user=~".*",client_id=~"billing"}
kafka_server_request_throttle_time{user=~".*",client_id=~"billing"}
kafka_server_kafkaserver_brokerstate
"""

CONFLUENT_KRAFT: Final = """
kafka_server_raft_metrics_high_watermark
kafka_controller_kafkacontroller_activebrokercount
kafka_controller_kafkacontroller_fencedbrokercount
kafka_server_raft_metrics_current_leader
kafka_server_raft_metrics_current_epoch
kafka_controller_kafkacontroller_metadataerrorcount
kafka_controller_kafkacontroller_lastappliedrecordlagms
kafka_server_raft_metrics_election_latency_max
kafka_server_raft_metrics_append_records_rate
kafka_server_raft_metrics_commit_latency_avg
kafka_server_raft_metrics_fetch_records_rate
kafka_controller_controllereventmanager_eventqueuetimems
kafka_controller_controllereventmanager_eventqueueprocessingtimems
process_cpu_seconds_total
jvm_memory_used_bytes
jvm_memory_bytes_max
jvm_gc_collection_seconds_sum
"""

DASHBOARDS: Final = {
    "Strimzi Kafka": STRIMZI_KAFKA,
    "Strimzi KRaft": STRIMZI_KRAFT,
    "Strimzi Kafka exporter": STRIMZI_KAFKA_EXPORTER,
    "kafka_exporter": KAFKA_EXPORTER,
    "Confluent cluster": CONFLUENT_CLUSTER,
    "Confluent quotas": CONFLUENT_QUOTAS,
    "Confluent KRaft": CONFLUENT_KRAFT,
}

NOT_APPLICABLE: Final = {
    "kafka_server_brokertopicmetrics_failedproducerequests_total{topic": "made with the first failure, as in Kafka",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total{topic": "made with the first failure, as in Kafka",
    "container_": "of Kubernetes",
    "kubelet_": "of Kubernetes",
    "jvm_": "of a JVM",
    "kafka_server_raftchannelmetrics_": "a sole voter has no connections to other voters",
    "kafka_server_replicafetchermanager_": "one broker has no followers",
    "kafka_server_replicamanager_straypartitions": "of Confluent Server",
    "kafka_log_log_tiersize": "of Confluent Server's tiered storage",
    "kafka_tier_": "of Confluent Server's tiered storage",
}
"""Prefixes of metrics that one node that is no JVM, and has had no failure, cannot have."""
