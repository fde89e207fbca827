"""Channel options of gRPC for large messages, by name."""

UNLIMITED = {
    "grpc.max_send_message_length": -1,
    "grpc.max_receive_message_length": -1,
    "grpc.initial_reconnect_backoff_ms": 50,  # until the worker has started
    "grpc.max_reconnect_backoff_ms": 50,
}
GRPC_OPTIONS = {
    "default": UNLIMITED,
    "large reads": UNLIMITED
    | {
        "grpc.http2.max_frame_size": (1 << 24) - 1,
        "grpc.experimental.tcp_min_read_chunk_size": 1 << 20,
        "grpc.experimental.tcp_read_chunk_size": 1 << 22,
        "grpc.experimental.tcp_max_read_chunk_size": 1 << 22,
    },
}
