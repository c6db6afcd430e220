"""`_metadata.json`: what publishers write, and what they get wrong."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import BadMetadata
from mirrorlake.landing import metadata
from mirrorlake.landing.metadata import BY_TIME, SEQUENTIAL, Metadata, OurMetadata

texts = st.text(min_size=1, max_size=10)
written = st.builds(
    Metadata,
    key_columns=st.lists(texts, max_size=4).map(tuple),
    detection=st.sampled_from([SEQUENTIAL, BY_TIME]),
    upsert_default=st.booleans(),
    ours=st.none()
    | st.builds(
        OurMetadata,
        texts,
        texts,
        st.dictionaries(texts, texts | st.booleans()),
        st.booleans(),
    ),
)
OURS = {"format": "1", "generation": "g", "table": "t", "source": {"schema": "s"}}


def decode(content: bytes | str | dict) -> Metadata:
    if isinstance(content, dict):
        content = json.dumps(content)
    if isinstance(content, str):
        content = content.encode()
    return metadata.decode(content, table="sales.orders", file="_metadata.json")


def fault(content: bytes | str | dict) -> BadMetadata:
    with pytest.raises(BadMetadata) as caught:
        decode(content)
    return caught.value


class TestKey:
    @pytest.mark.clause("LZ-030", "LZ-031", "LZ-328")
    def test_the_key_of_a_table(self) -> None:
        assert decode('{"keyColumns": ["EmployeeID"]}').key_columns == ("EmployeeID",)

    @pytest.mark.clause("LZ-032", "LZ-317")
    def test_several_names_make_a_composite_key(self) -> None:
        assert decode('{ "keyColumns" : ["C1", "C2"] }').key_columns == ("C1", "C2")

    @pytest.mark.clause("LZ-045")
    def test_an_empty_key_is_not_a_key(self) -> None:
        assert decode({"keyColumns": []}) == decode({})

    def test_a_null_key_is_not_a_key(self) -> None:
        assert decode({"keyColumns": None}).key_columns == ()

    @pytest.mark.parametrize("key", ["id", {"id": 1}, [1], [None], [""], [["id"]]])
    def test_the_key_must_be_an_array_of_names(self, key: object) -> None:
        assert "keyColumns" in fault({"keyColumns": key}).what

    def test_a_name_that_is_repeated_counts_once(self) -> None:
        assert decode({"keyColumns": ["a", "b", "a"]}).key_columns == ("a", "b")


class TestOptions:
    @pytest.mark.clause("LZ-047")
    def test_files_are_sequential_by_default(self) -> None:
        assert decode({}).detection == SEQUENTIAL

    @pytest.mark.clause("LZ-047", "LZ-050")
    @pytest.mark.parametrize("text", [BY_TIME, BY_TIME.upper(), BY_TIME.lower()])
    def test_files_may_be_detected_by_time(self, text: str) -> None:
        assert decode({"fileDetectionStrategy": text}).detection == BY_TIME

    @pytest.mark.parametrize("value", ["", "Sequential", 1, True, []])
    def test_any_other_strategy_is_refused(self, value: object) -> None:
        error = fault({"fileDetectionStrategy": value})
        assert SEQUENTIAL in error.what
        assert BY_TIME in error.what

    @pytest.mark.clause("LZ-048")
    @pytest.mark.parametrize(
        ("content", "upsert"),
        [
            ({}, False),
            ({"isUpsertDefaultRowMarker": False}, False),
            ({"isUpsertDefaultRowMarker": True}, True),
        ],
    )
    def test_the_default_operation(self, content: dict, upsert: bool) -> None:
        assert decode(content).upsert_default is upsert

    @pytest.mark.parametrize("value", ["true", 1, 0, [], {}])
    def test_the_default_operation_is_true_or_false(self, value: object) -> None:
        assert "isUpsertDefaultRowMarker" in fault({"isUpsertDefaultRowMarker": value}).what

    @pytest.mark.parametrize("upsert", [True, False])
    @pytest.mark.parametrize("detection", [SEQUENTIAL, BY_TIME])
    def test_both_options_can_be_combined(self, upsert: bool, detection: str) -> None:
        found = decode({"isUpsertDefaultRowMarker": upsert, "fileDetectionStrategy": detection})
        assert (found.upsert_default, found.detection) == (upsert, detection)


class TestLeniency:
    @pytest.mark.clause("LZ-050")
    @pytest.mark.parametrize("name", ["keyColumns", "KeyColumns", "keycolumns", "KEYCOLUMNS"])
    def test_members_are_found_in_any_case(self, name: str) -> None:
        assert decode({name: ["id"]}).key_columns == ("id",)

    @pytest.mark.clause("LZ-050")
    @pytest.mark.parametrize("change", [str, str.upper, str.lower, str.title])
    def test_all_other_members_and_values_are_found_in_any_case(
        self, change: Callable[[str], str]
    ) -> None:
        found = decode(
            {
                change("fileDetectionStrategy"): change(BY_TIME),
                change("isUpsertDefaultRowMarker"): True,
                change("ConditionalUpdateColumn"): "seqNum",
                change("isPartitionEnabled"): True,
            }
        )
        expected = Metadata(
            (), BY_TIME, upsert_default=True, conditional="seqNum", partitioned=True
        )
        assert found == expected
        assert decode({change("fileDetectionStrategy"): change(SEQUENTIAL)}).detection == SEQUENTIAL

    def test_unknown_members_are_ignored_and_returned(self) -> None:
        found = decode({"keyColumns": ["id"], "protocolVersion": 3, "Colour": {}})
        assert found == Metadata(key_columns=("id",), unknown=("Colour", "protocolVersion"))

    @pytest.mark.clause("LZ-058")
    def test_a_conditional_update_is_accepted_and_returned(self) -> None:
        found = decode({"keyColumns": ["id"], "ConditionalUpdateColumn": "seqNum"})
        assert found == Metadata(key_columns=("id",), conditional="seqNum")

    @pytest.mark.clause("LZ-059", "LZ-335")
    @pytest.mark.parametrize(
        ("value", "expected"), [(True, True), ("true", True), (False, False), ("False", False)]
    )
    def test_partitions_are_accepted_and_returned(self, value: object, expected: bool) -> None:
        assert decode({"isPartitionEnabled": value}) == Metadata(partitioned=expected)

    @pytest.mark.clause("LZ-052", "LZ-331")
    def test_tolerances_are_returned(self) -> None:
        found = decode('{ "keyColumns": ["C1", "C2"], }')
        assert found.key_columns == ("C1", "C2")
        assert [str(note) for note in found.notes] == [
            "line 1, column 29: a comma before the closing bracket"
        ]

    @pytest.mark.clause("LZ-319", "LZ-330", "LZ-052")
    def test_the_example_of_files_that_are_not_sequential(self) -> None:
        found = decode(
            '{ "keyColumns" : ["id"], "fileDetectionStrategy": LastUpdateTimeFileDetection, '
            '"isUpsertDefaultRowMarker": true }'
        )
        assert (found.key_columns, found.detection, found.upsert_default) == (
            ("id",),
            BY_TIME,
            True,
        )

    def test_a_byte_order_mark_is_allowed(self) -> None:
        assert decode(b'\xef\xbb\xbf{"keyColumns": ["id"]}').key_columns == ("id",)

    def test_names_are_unicode(self) -> None:
        assert decode('{"keyColumns": ["größe", "\\u00e9"]}').key_columns == ("größe", "é")


class TestErrors:
    @pytest.mark.clause("LZ-054")
    def test_the_location_of_an_error_is_named(self) -> None:
        error = fault('{"keyColumns":\n  ["id"}')
        assert "line 2, column 8" in error.what
        assert (error.table, error.file) == ("sales.orders", "_metadata.json")

    @pytest.mark.clause("LZ-054")
    def test_a_byte_that_is_not_text_is_named(self) -> None:
        assert "byte 2" in fault(b'{"\xff": 1}').what

    @pytest.mark.clause("LZ-030")
    @pytest.mark.parametrize("content", ["[]", '"id"', "1", "null"])
    def test_the_file_must_contain_one_object(self, content: str) -> None:
        assert "a single JSON object" in fault(content).what

    @pytest.mark.parametrize("content", ["", "  ", '{"keyColumns": ["id"]', "{} {}"])
    def test_invalid_json_is_refused(self, content: str) -> None:
        assert "not valid JSON" in fault(content).what

    @pytest.mark.parametrize("content", ["[" * 100_000, "9" * 5_000])
    def test_json_without_end_is_refused(self, content: str) -> None:
        assert "JSON" in fault(content).what

    def test_a_huge_file_is_refused(self) -> None:
        assert "bytes" in fault(b" " * metadata.LIMIT + b"{}").what

    def test_an_unpaired_surrogate_is_refused(self) -> None:
        assert "surrogate" in fault('{"keyColumns": ["\\ud800"]}').what

    @pytest.mark.parametrize("member", ["keyColumns", "KEYCOLUMNS"])
    def test_the_location_of_an_invalid_value_is_named(self, member: str) -> None:
        error = fault(f'{{\n  "{member}": 3}}')
        assert error.what == (
            f"{member} is 3, expected an array of column names at line 2, column 17"
        )


class TestOurMember:
    def test_our_member_is_read(self) -> None:
        assert decode({"mirrorlake": OURS}).ours == OurMetadata("g", "t", {"schema": "s"})

    def test_a_table_with_a_key_does_not_use_whole_rows(self) -> None:
        ours = OURS | {"whole_rows": True}
        assert decode({"mirrorlake": ours}).whole_rows
        assert not decode({"mirrorlake": ours, "keyColumns": ["id"]}).whole_rows
        assert not decode({"mirrorlake": OURS}).whole_rows

    def test_other_publishers_have_no_member_of_ours(self) -> None:
        assert decode({"keyColumns": ["id"]}).ours is None

    def test_a_later_format_is_refused_by_its_name(self) -> None:
        error = fault({"mirrorlake": OURS | {"format": "2"}})
        assert "'2'" in error.what
        assert "release" in error.hint

    @pytest.mark.parametrize(
        "member",
        [
            "text",
            {},
            {name: value for name, value in OURS.items() if name != "generation"},
            {name: value for name, value in OURS.items() if name != "table"},
            OURS | {"generation": 1},
            OURS | {"source": "text"},
            OURS | {"whole_rows": "yes"},
        ],
    )
    def test_a_damaged_member_is_refused(self, member: object) -> None:
        assert "mirrorlake" in fault({"mirrorlake": member}).what


class TestWriting:
    @pytest.mark.clause("LZ-053")
    @given(written)
    def test_what_we_write_is_read_back(self, found: Metadata) -> None:
        expected = Metadata(
            tuple(dict.fromkeys(found.key_columns)),
            found.detection,
            found.upsert_default,
            ours=found.ours,
        )
        assert decode(metadata.encode(found)) == expected

    @pytest.mark.clause("LZ-053")
    def test_we_write_strict_json_in_the_spelling_of_the_specification(self) -> None:
        found = Metadata(("id",), BY_TIME, upsert_default=True)
        assert json.loads(metadata.encode(found)) == {
            "keyColumns": ["id"],
            "fileDetectionStrategy": "LastUpdateTimeFileDetection",
            "isUpsertDefaultRowMarker": True,
        }

    def test_defaults_are_left_out(self) -> None:
        assert json.loads(metadata.encode(Metadata(("id",)))) == {"keyColumns": ["id"]}
