from barnabas.replica._fetch_results_pure import answers_of, bytes_by_topic, look_over, news_of

__all__ = ["answers_of", "bytes_by_topic", "look_over", "news_of"]
