"""WebShop's files: the official format, its peculiarities, and one clear error for each thing that can be
wrong.
"""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bipace.envs.webshop import jsonstream
from bipace.envs.webshop.catalogue import WebShopDataError, load_catalogue, price_of, search_text
from bipace.envs.webshop.generate import generate_files, generated_records
from bipace.envs.webshop.goals import make_goals

ITEM = {
    "asin": "B001",
    "name": "Blue Mug",
    "category": "garden",
    "query": " Mugs ",
    "product_category": "Home \u203a Kitchen \u203a Mugs",
    "full_description": "A mug.",
    "small_description": ["Holds 12 oz", "Safe"],
    "pricing": "$1,012.50 - $1,100.00",
    "customization_options": {"Color": [{"value": " Navy/White ", "image": "x"}], "size": None},
    "images": ["https://example.org/a.jpg"],
    "brand": "unused",
}
ANNOTATION = {
    "attributes": ["dishwasher safe"],
    "instruction": "Find me mugs",
    "instruction_attributes": ["safe"],
}
WISH = {
    "asin": "B001",
    "instruction": "i need a mug.",
    "instruction_attributes": ["safe"],
    "instruction_options": ["x"],
}


def write(folder, items=(ITEM,), annotations=None, human=None):
    folder.mkdir(exist_ok=True)
    files = {
        "items_shuffle_1000.json": list(items),
        "items_ins_v2_1000.json": {"B001": ANNOTATION} if annotations is None else annotations,
        "items_human_ins.json": {"B001": [WISH], "B999": [WISH]} if human is None else human,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_an_official_record_becomes_a_product(tmp_path):
    catalogue = load_catalogue(write(tmp_path / "data"))
    (mug,) = catalogue.products
    assert (mug.asin, mug.title, mug.query, mug.category) == ("B001", "Blue Mug", "mugs", "garden")
    # a slash becomes a bar; an option without values goes
    assert mug.options == (("color", ("navy | white",)),)
    assert (mug.prices, mug.price_tag) == ((1012.5, 1100.0), "$1012.5 to $1100.0")
    assert mug.attributes == ("dishwasher safe",)
    assert search_text(mug) == "blue mug a mug. holds 12 oz color: navy | white"
    assert set(catalogue.human) == {"B001"}  # instructions for products that are not there are left out


@pytest.mark.parametrize(
    ("pricing", "prices", "tag"),
    [
        ("$5.00", (5.0,), "$5.0"),
        ("", (100.0,), "$100.0"),
        (None, (100.0,), "$100.0"),
        ("$1.50 - $2.25 - $9.00", (1.5, 2.25), "$1.5 to $2.25"),
    ],
)
def test_prices(tmp_path, pricing, prices, tag):
    (product,) = load_catalogue(write(tmp_path / "data", [{**ITEM, "pricing": pricing}])).products
    assert (product.prices, product.price_tag) == (prices, tag)


def test_a_price_range_gives_one_price_fixed_by_asin_and_seed(tmp_path):
    (mug,) = load_catalogue(write(tmp_path / "data")).products
    assert price_of(mug, 0) == price_of(mug, 0) != price_of(mug, 1)
    assert all(1012.5 <= price_of(mug, seed) <= 1100.0 for seed in range(20))


def test_records_the_public_code_skips_are_skipped(tmp_path):
    items = [ITEM, {**ITEM, "name": "again"}, {**ITEM, "asin": "nan"}, {**ITEM, "asin": "B0123456789"}]
    plain = {**ITEM, "asin": "B002", "small_description": "one line", "customization_options": None}
    catalogue = load_catalogue(write(tmp_path / "data", [*items, plain], annotations={}))
    assert [product.title for product in catalogue.products] == ["Blue Mug", "Blue Mug"]
    assert catalogue.products[1].bullets == ("one line",)
    assert catalogue.products[1].attributes == ("DUMMY_ATTR",)
    assert [product.asin for product in load_catalogue(tmp_path / "data", limit=1).products] == ["B001"]


def test_missing_files_are_named_in_one_error(tmp_path):
    with pytest.raises(
        WebShopDataError, match=r"items_shuffle_1000.json, .*items_human_ins.json not found.*github.com"
    ):
        load_catalogue(tmp_path)
    write(tmp_path / "data")
    (tmp_path / "data" / "items_ins_v2_1000.json").unlink()
    with pytest.raises(WebShopDataError, match=r"data: items_ins_v2_1000.json not found"):
        load_catalogue(tmp_path / "data")
    with pytest.raises(WebShopDataError, match=r"items_shuffle.json"):
        load_catalogue(tmp_path / "data", "full")
    with pytest.raises(WebShopDataError, match="size: 'medium'"):
        load_catalogue(tmp_path / "data", "medium")


@pytest.mark.parametrize(
    "name", ["items_shuffle_1000.json", "items_ins_v2_1000.json", "items_human_ins.json"]
)
@pytest.mark.parametrize(
    "content", [b"", b"[1, 2", b'{"a": ', b"<html>", b"\xff\xfe", b'"text"', b"[] []", b"[" * 9999]
)
def test_a_broken_file_is_named(tmp_path, name, content):
    folder = write(tmp_path / "data")
    (folder / name).write_bytes(content)
    with pytest.raises(WebShopDataError, match=rf"{name}.*github.com"):
        load_catalogue(folder)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({key: value for key, value in ITEM.items() if key != "name"}, "entry 0 has no field 'name'"),
        ({**ITEM, "query": 5}, "entry 0 is malformed"),
        ({**ITEM, "pricing": "$1.2.3"}, "entry 0 is malformed"),
        ({**ITEM, "customization_options": {"color": [{}]}}, "entry 0 has no field 'value'"),
        ("text", "entry 0 is malformed"),
        ({**ITEM, "name": 5}, "entry 0 is malformed.*5 where text should be"),
        ({**ITEM, "small_description": ["x", None]}, "entry 0 is malformed.*None where text should be"),
    ],
)
def test_a_broken_entry_is_named(tmp_path, item, message):
    with pytest.raises(WebShopDataError, match=message):
        load_catalogue(write(tmp_path / "data", [item]))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"annotations": {"B001": {"instruction": "x"}}},
            "B001 has an instruction without instruction_attributes",
        ),
        (
            {"annotations": {"B001": {"instruction": "x", "instruction_attributes": "y"}}},
            "B001 has an instruction without",
        ),
        (
            {"annotations": {"B001": {"attributes": None}}},
            "B001 has attributes None, expected a list of text",
        ),
        ({"annotations": {"B001": []}}, "B001 is list"),
        (
            {"human": {"B001": [{"instruction": "x"}]}},
            "B001 has an instruction without instruction_attributes",
        ),
        ({"human": {"B001": 5}}, "B001 has an instruction without instruction"),
        ({"human": {"B001": [5]}}, "B001 has an instruction without instruction"),
        (
            {"human": {"B001": [{**WISH, "instruction_options": None}]}},
            "B001 has an instruction without instruction_opt",
        ),
    ],
)
def test_a_broken_annotation_is_named(tmp_path, files, message):
    with pytest.raises(WebShopDataError, match=message):
        load_catalogue(write(tmp_path / "data", **files))


def test_human_goals_take_the_instruction_and_add_the_price_bound(tmp_path):
    item = {**ITEM, "pricing": "$12.00"}
    wishes = [WISH, {**WISH, "instruction_attributes": []}, {**WISH, "instruction_options": {"color": "red"}}]
    goals = make_goals(load_catalogue(write(tmp_path / "data", [item], human={"B001": wishes})), "human", 0)
    assert len(goals) == 2  # one had no attributes
    for goal in goals:
        assert goal.price_upper in (30.0, 40.0, 50.0)
        assert goal.instruction == f"i need a mug, and price lower than {goal.price_upper:.2f} dollars"
    assert {goal.options for goal in goals} == {("x",), (("color", "red"),)}


def test_synthetic_goals_are_one_per_combination_of_options(tmp_path):
    options = {"size": [{"value": "s"}, {"value": "m"}], "color": [{"value": "red"}, {"value": "blue"}]}
    item = {**ITEM, "pricing": "$2000", "customization_options": options}
    goals = make_goals(load_catalogue(write(tmp_path / "data", [item])), "synthetic", 0)
    assert sorted(goal.instruction for goal in goals) == [
        f"Find me mugs with color: {color}, and size: {size}"
        for color in ("blue", "red")
        for size in ("m", "s")
    ]
    assert {goal.price_upper for goal in goals} == {1_000_000.0}
    with pytest.raises(ValueError, match="goals: 'both'"):
        make_goals(load_catalogue(tmp_path / "data"), "both", 0)


def test_generated_files_read_back_as_the_records_they_were_made_of(tmp_path):
    generate_files(tmp_path / "shop", 60, seed=5)
    catalogue = load_catalogue(tmp_path / "shop")
    records = list(generated_records(60, 5))
    assert len(catalogue.products) == len(records) == 60
    for product, (item, annotation, wishes) in zip(catalogue.products, records, strict=True):
        assert (product.asin, product.title, product.query) == (item["asin"], item["name"], item["query"])
        assert (product.bullets, product.description) == (
            tuple(item["small_description"]),
            item["full_description"],
        )
        assert list(product.attributes) == annotation["attributes"]
        assert {name: [{"value": value} for value in values] for name, values in product.options} == item[
            "customization_options"
        ]
        assert list(catalogue.human[product.asin]) == wishes
        assert catalogue.synthetic[product.asin][0] == annotation["instruction"]


def test_a_generated_product_does_not_depend_on_how_many_there_are():
    assert list(generated_records(5, 1)) == list(generated_records(40, 1))[:5]
    assert list(generated_records(5, 1)) != list(generated_records(5, 2))


def test_generated_ids_are_unique_and_of_the_official_length():
    ids = [item["asin"] for item, _, _ in generated_records(3000, 0)]
    assert len(set(ids)) == len(ids)
    assert {len(asin) for asin in ids} == {10}


def test_generation_keeps_a_folder_and_refuses_other_sizes(tmp_path):
    generate_files(tmp_path / "shop", 3)
    before = (tmp_path / "shop" / "items_shuffle_1000.json").read_bytes()
    generate_files(tmp_path / "shop", 4)
    assert (tmp_path / "shop" / "items_shuffle_1000.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["shop"]  # no drafts are left behind
    for products in (0, 100_001):
        with pytest.raises(ValueError, match=f"products: {products}"):
            generate_files(tmp_path / "other", products)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=6), st.integers(1, 7), st.integers(0, 2))
def test_streaming_equals_json_at_every_chunk_size(tmp_path_factory, values, chunk, indent):
    path = tmp_path_factory.mktemp("stream") / "array.json"
    path.write_text(
        json.dumps(values, indent=indent or None, ensure_ascii=False), encoding="utf-8", errors="replace"
    )
    whole = json.loads(path.read_text(encoding="utf-8"))
    table = {str(place): value for place, value in enumerate(whole)}
    other = path.with_name("object.json")
    other.write_text(json.dumps(table), encoding="utf-8")
    usual, jsonstream.CHUNK = jsonstream.CHUNK, chunk
    try:
        assert list(jsonstream.stream_array(path)) == whole
        assert dict(jsonstream.stream_object(other)) == table
    finally:
        jsonstream.CHUNK = usual


def test_streaming_stops_reading_where_the_reader_stops(tmp_path):
    path = tmp_path / "array.json"
    path.write_text("[" + ", ".join(["1"] * 10) + ", broken", encoding="utf-8")
    stream = jsonstream.stream_array(path)
    assert [next(stream) for _ in range(9)] == [1] * 9
    with pytest.raises(ValueError, match=r"Expecting value|where"):
        list(stream)


def test_prices_of_generated_products_stay_in_their_range(tmp_path):
    generate_files(tmp_path / "shop", 200)
    for product in load_catalogue(tmp_path / "shop").products:
        assert min(product.prices) <= price_of(product, random.randrange(9)) <= max(product.prices)
