from barnabas.broker.handlers._produce_answer_pure import one_topic_answer

__all__ = ["one_topic_answer"]
