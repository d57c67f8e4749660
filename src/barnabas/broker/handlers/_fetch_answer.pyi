from barnabas.broker.handlers._fetch_answer_pure import fetch_answer

__all__ = ["fetch_answer"]
