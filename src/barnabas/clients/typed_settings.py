"""The settings of clients as keywords, for type checkers and editors: ``KafkaProducer(linger_ms=5)``.

Nothing imports this module when a program runs. ``None`` counts as not given. In a mapping, settings have Kafka's names
and any type that Kafka's own clients take, such as text from a properties file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

# -- generated from the definitions; see tests/unit/clients/test_typed_settings.py


class ClientSettings(TypedDict, total=False):
    """The settings that all clients have, and other clients' names for settings of security."""

    bootstrap_resolve_timeout_ms: int | None
    bootstrap_servers: str | Sequence[object] | None
    client_dns_lookup: str | None
    client_id: str | None
    client_rack: str | None
    config_providers: str | Sequence[object] | None
    connections_max_idle_ms: int | None
    enable_metrics_push: bool | None
    local_socket_enable: bool | None
    metadata_cluster_check_enable: bool | None
    metadata_max_age_ms: int | None
    metadata_recovery_rebootstrap_trigger_ms: int | None
    metadata_recovery_strategy: str | None
    metric_reporters: str | Sequence[object] | None
    metrics_num_samples: int | None
    metrics_recording_level: str | None
    metrics_sample_window_ms: int | None
    receive_buffer_bytes: int | None
    reconnect_backoff_max_ms: int | None
    reconnect_backoff_ms: int | None
    request_timeout_ms: int | None
    retry_backoff_max_ms: int | None
    retry_backoff_ms: int | None
    sasl_client_callback_handler_class: object
    sasl_jaas_config: str | None
    sasl_kerberos_kinit_cmd: str | None
    sasl_kerberos_min_time_before_relogin: int | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_ticket_renew_jitter: float | None
    sasl_kerberos_ticket_renew_window_factor: float | None
    sasl_login_callback_handler_class: object
    sasl_login_class: object
    sasl_login_connect_timeout_ms: int | None
    sasl_login_read_timeout_ms: int | None
    sasl_login_refresh_buffer_seconds: int | None
    sasl_login_refresh_min_period_seconds: int | None
    sasl_login_refresh_window_factor: float | None
    sasl_login_refresh_window_jitter: float | None
    sasl_login_retry_backoff_max_ms: int | None
    sasl_login_retry_backoff_ms: int | None
    sasl_mechanism: str | None
    sasl_mechanisms: str | bool | None
    sasl_oauth_token_provider: object
    sasl_oauthbearer_allow_unverified_audience: bool | None
    sasl_oauthbearer_allow_unverified_issuer: bool | None
    sasl_oauthbearer_assertion_algorithm: str | None
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int | None
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_jti_include: bool | None
    sasl_oauthbearer_assertion_claim_nbf_seconds: int | None
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_template_file: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_clock_skew_seconds: int | None
    sasl_oauthbearer_expected_audience: str | Sequence[object] | None
    sasl_oauthbearer_expected_issuer: str | None
    sasl_oauthbearer_header_urlencode: bool | None
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int | None
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int | None
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int | None
    sasl_oauthbearer_jwks_endpoint_url: str | None
    sasl_oauthbearer_jwt_retriever_class: object
    sasl_oauthbearer_jwt_validator_class: object
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_scope_claim_name: str | None
    sasl_oauthbearer_sub_claim_name: str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_password: str | bool | None
    sasl_plain_password: str | bool | None
    sasl_plain_username: str | bool | None
    sasl_username: str | bool | None
    security_protocol: str | None
    security_providers: str | None
    send_buffer_bytes: int | None
    socket_connection_setup_timeout_max_ms: int | None
    socket_connection_setup_timeout_ms: int | None
    ssl_ca_location: str | bool | None
    ssl_ca_pem: str | bool | None
    ssl_cafile: str | bool | None
    ssl_certfile: str | bool | None
    ssl_certificate_location: str | bool | None
    ssl_certificate_pem: str | bool | None
    ssl_check_hostname: str | bool | None
    ssl_cipher_suites: str | Sequence[object] | None
    ssl_context: object
    ssl_enabled_protocols: str | Sequence[object] | None
    ssl_endpoint_identification_algorithm: str | None
    ssl_engine_factory_class: object
    ssl_key_location: str | bool | None
    ssl_key_password: str | None
    ssl_key_pem: str | bool | None
    ssl_keyfile: str | bool | None
    ssl_keymanager_algorithm: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_type: str | None
    ssl_password: str | bool | None
    ssl_protocol: str | None
    ssl_provider: str | None
    ssl_secure_random_implementation: str | None
    ssl_trustmanager_algorithm: str | None
    ssl_truststore_certificates: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_type: str | None


class ProducerSettings(ClientSettings, total=False):
    """The settings of a producer, as keywords."""

    acks: str | int | None
    batch_max_size: int | None
    batch_size: int | None
    buffer_memory: int | None
    buffer_memory_allocation_strategy: str | None
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_type: str | None
    compression_zstd_level: int | None
    delivery_timeout_ms: int | None
    enable_idempotence: bool | None
    interceptor_classes: str | Sequence[object] | None
    linger_ms: int | None
    max_block_ms: int | None
    max_in_flight_requests_per_connection: int | None
    max_request_size: int | None
    metadata_max_idle_ms: int | None
    partitioner_adaptive_partitioning_enable: bool | None
    partitioner_availability_timeout_ms: int | None
    partitioner_class: object
    partitioner_ignore_keys: bool | None
    partitioner_rack_aware: bool | None
    retries: int | None
    transaction_timeout_ms: int | None
    transaction_two_phase_commit_enable: bool | None
    transactional_id: str | None


class ProducerArguments(ProducerSettings, total=False):
    """All keywords of a producer: settings, plug-ins, and what tests replace."""

    clock: Any
    interceptors: Any
    key_serializer: Any
    partitioner: Any
    random: Any
    resolver: Any
    selector: Any
    start_thread: Any
    value_serializer: Any


class ConsumerSettings(ClientSettings, total=False):
    """The settings of a consumer, as keywords."""

    allow_auto_create_topics: bool | None
    auto_commit_interval_ms: int | None
    auto_offset_reset: str | None
    check_crcs: bool | None
    default_api_timeout_ms: int | None
    enable_auto_commit: bool | None
    exclude_internal_topics: bool | None
    fetch_max_bytes: int | None
    fetch_max_wait_ms: int | None
    fetch_min_bytes: int | None
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str | None
    group_remote_assignor: str | None
    heartbeat_interval_ms: int | None
    interceptor_classes: str | Sequence[object] | None
    internal_leave_group_on_close: bool | None
    isolation_level: str | None
    max_partition_fetch_bytes: int | None
    max_poll_interval_ms: int | None
    max_poll_records: int | None
    partition_assignment_strategy: str | Sequence[object] | None
    session_timeout_ms: int | None


class AdminSettings(ClientSettings, total=False):
    """The settings of an admin client, as keywords."""

    default_api_timeout_ms: int | None
    retries: int | None


class AdminArguments(AdminSettings, total=False):
    """All keywords of an admin client: settings, plug-ins, and what tests replace."""

    clock: Any
    fail_fast: Any
    random: Any
    resolver: Any
    selector: Any
    start_thread: Any
