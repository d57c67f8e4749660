"""Images against a model of plain dictionaries, over random logs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.image import EMPTY_IMAGE, PARTS, MetadataImage
from barnabas.metadata.writer import ImageWriterOptions
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.topics import CLUSTER_METADATA
from unit.metadata.naive_model import NaiveModel, content_of, record_sequences
from unit.metadata.samples import delta_of, image_of, provenance, written

Log = list[MetadataRecord]


def model_of(log: Log) -> NaiveModel:
    model = NaiveModel()
    for record in log:
        model.apply(record)
    return model


def replayed_bytes(image: MetadataImage, base: MetadataImage = EMPTY_IMAGE) -> MetadataDelta:
    """A delta of an image's snapshot that went over bytes, as in a file."""
    encoded = [CLUSTER_METADATA.encode(record, version) for record, version in written(image)]
    delta = delta_of((CLUSTER_METADATA.decode(value)[0] for value in encoded), base)
    delta.finish_snapshot()
    return delta


@settings(deadline=None, max_examples=150)
@given(record_sequences(), st.lists(st.integers(1, 12), min_size=1))
def test_an_image_says_what_the_log_says(log: Log, cuts: list[int]) -> None:
    """However the log is cut into deltas, and at each cut."""
    image, model, position = EMPTY_IMAGE, NaiveModel(), 0
    while position < len(log):
        piece = log[position : position + cuts[position % len(cuts)]]
        position += len(piece)
        earlier, before = image, content_of(image)
        delta = delta_of(piece, image)
        image = delta.apply(provenance(position))
        for record in piece:
            model.apply(record)
        assert content_of(image) == model.content()
        assert content_of(earlier) == before  # nothing reached back
        for part in PARTS:  # an untouched part is not even copied
            if getattr(delta, part) is None:
                assert getattr(image, part) is getattr(earlier, part)


@settings(deadline=None, max_examples=150)
@given(record_sequences())
def test_an_image_survives_its_own_snapshot(log: Log) -> None:
    image = image_of(log)
    again = replayed_bytes(image).apply(image.provenance)
    assert again == image
    assert content_of(again) == content_of(image)
    assert written(again) == written(image)


@settings(deadline=None, max_examples=150)
@given(record_sequences(), record_sequences())
def test_a_snapshot_replaces_whatever_was_there(old_log: Log, new_log: Log) -> None:
    old, new = image_of(old_log), image_of(new_log)
    delta = replayed_bytes(new, old)
    result = delta.apply(provenance(9))
    assert result.same_content(new)
    for part in PARTS:  # and is told as the difference it makes
        assert (getattr(delta, part) is None) is (getattr(old, part) == getattr(new, part)), part
    if delta.topics is not None:
        before, after = old.topics.by_id, new.topics.by_id
        assert delta.topics.created_topic_ids == set(after) - set(before)
        assert delta.topics.deleted_topic_ids == set(before) - set(after)
        changed = {topic_id for topic_id in after if before.get(topic_id) != after[topic_id]}
        assert delta.topics.changed_topics.keys() == changed


@settings(deadline=None, max_examples=100)
@given(record_sequences(), record_sequences(max_size=10))
def test_a_continued_log_and_its_snapshot_differ_in_the_same_things(log: Log, more: Log) -> None:
    """A node that follows the log and one that is given a snapshot instead have to do the same."""
    model = model_of(log)
    base = image_of(log)
    for record in more:
        try:
            followed = delta_of([record], base)
            given_ = followed.apply(provenance(5))
        except MetadataReplayError:  # made for another log, and does not fit this one
            continue
        model.apply(record)
        jumped = replayed_bytes(given_, base)
        for broker_id in range(5):
            assert _local(followed, broker_id) == _local(jumped, broker_id)
        base = given_
    assert content_of(base) == model.content()


def _local(delta: MetadataDelta, broker_id: int) -> object:
    changes = None if delta.topics is None else delta.topics.local_changes(broker_id)
    return changes or None


@settings(deadline=None, max_examples=100)
@given(record_sequences())
def test_everything_at_once_for_a_newcomer(log: Log) -> None:
    image = image_of(log)
    delta = MetadataDelta.of_everything(image)
    assert delta.image is EMPTY_IMAGE
    assert delta.apply(image.provenance) == image
    if image.topics:
        assert delta.topics is not None
        assert delta.topics.created_topic_ids == set(image.topics.by_id)
    reference = replayed_bytes(image)
    for broker_id in range(5):
        assert _local(delta, broker_id) == _local(reference, broker_id)


@settings(deadline=None, max_examples=50)
@given(record_sequences())
def test_an_old_version_loses_something_or_says_the_same(log: Log) -> None:
    image = image_of(log)
    assert image.features.metadata_version is not None
    for version in type(image.features.metadata_version):
        losses: list[str] = []
        options = ImageWriterOptions(version, lambda error: losses.append(str(error)))  # noqa: B023 - used in this turn
        encoded = [CLUSTER_METADATA.encode(record, number) for record, number in written(image, options)]
        again = image_of(CLUSTER_METADATA.decode(value)[0] for value in encoded)
        assert again.features.metadata_version is version
        for part in PARTS[1:]:
            assert losses or getattr(again, part) == getattr(image, part)
