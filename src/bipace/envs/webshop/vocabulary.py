"""The words of the generated catalogue: product types, attributes, options, brands and the noise of real titles.

Plain data, read by `generate.py` alone. Changing anything here changes every generated catalogue: raise
`generate.VERSION` with it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AUDIENCES", "BRANDS", "CATEGORY_ATTRIBUTES", "FILLERS", "OPTION_VALUES", "ProductType", "TYPES"]


@dataclass(frozen=True, slots=True)
class ProductType:
    """One kind of product.

    Attributes:
        category: one of the five categories of the official data.
        path: category path in the official form, levels joined by " › ".
        query: the search phrase under which the product was found; equal queries mean the same type.
        nouns: ways a title names it.
        attributes: attributes only this type has.
        options: option names it may offer (keys of OPTION_VALUES).
        low: lowest price in dollars.
        high: highest price in dollars.
    """

    category: str
    path: str
    query: str
    nouns: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    low: float
    high: float


def _type(line: str) -> ProductType:
    category, path, query, nouns, attributes, options, prices = (part.strip() for part in line.split("|"))
    low, high = prices.split("-")
    return ProductType(
        category,
        path.replace(">", "›"),
        query,
        _words(nouns),
        _words(attributes),
        _words(options),
        float(low),
        float(high),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


CATEGORY_ATTRIBUTES = {
    "beauty": _words(
        "cruelty free, paraben free, sulfate free, easy to use, long lasting, natural ingredients, dermatologist tested, "
        "travel size, alcohol free, sensitive skin, high quality, fragrance free"
    ),
    "electronics": _words(
        "easy to install, high speed, plug and play, heavy duty, fast charging, ultra hd, noise cancelling, hands free, "
        "long lasting, compatible with usb, water resistant, high definition"
    ),
    "fashion": _words(
        "machine wash, hand wash, long sleeve, elastic waist, rubber sole, slim fit, loose fit, quality materials, "
        "arch support, memory foam, tumble dry, moisture wicking"
    ),
    "garden": _words(
        "easy to clean, easy to assemble, solid wood, eco friendly, space saving, non slip, living room, dining room, "
        "super soft, fade resistant, heavy duty, mid century"
    ),
    "grocery": _words(
        "gluten free, non gmo, sugar free, low calorie, dairy free, kosher certified, usda organic, plant based, "
        "high protein, nut free, low sodium, artificial colors free"
    ),
}

TYPES = tuple(
    _type(line)
    for line in """
beauty | Beauty & Personal Care > Hair Care > Shampoo | shampoo | Shampoo, Hair Shampoo | color safe, dry scalp, argan oil | volume, scent | 6-34
beauty | Beauty & Personal Care > Skin Care > Face > Creams | face moisturizer | Face Moisturizer, Facial Cream | anti aging, hyaluronic acid, fine lines | volume, scent | 9-58
beauty | Beauty & Personal Care > Makeup > Lips > Lipstick | lipstick | Lipstick, Matte Lipstick | highly pigmented, smudge proof, vitamin e | color | 5-29
beauty | Beauty & Personal Care > Tools > Makeup Brushes | makeup brushes | Makeup Brush Set, Makeup Brushes | synthetic hair, rose gold handle, easy carry | color, pieces | 8-44
beauty | Beauty & Personal Care > Hair Care > Extensions | hair extensions | Hair Extensions, Clip in Hair Extension | human hair, double weft, heat resistant | color, length | 18-160
beauty | Beauty & Personal Care > Nails > Polish | nail polish | Nail Polish, Gel Nail Polish | quick drying, non toxic, chip resistant | color, pieces | 4-26
beauty | Beauty & Personal Care > Skin Care > Body > Lotions | body lotion | Body Lotion, Moisturizing Lotion | shea butter, coconut oil, dry skin | volume, scent | 6-32
beauty | Health & Household > Oral Care > Toothbrushes | electric toothbrush | Electric Toothbrush, Sonic Toothbrush | teeth whitening, bpa free, usb rechargeable | color, pieces | 15-99
electronics | Electronics > Headphones > Over-Ear | bluetooth headphones | Bluetooth Headphones, Wireless Headphones | stereo sound, foldable design, built in microphone | color, style | 19-220
electronics | Electronics > Computers > Accessories > Mice | wireless mouse | Wireless Mouse, Gaming Mouse | silent click, adjustable dpi, ergonomic grip | color, style | 9-79
electronics | Electronics > Cell Phones > Cases | phone case | Phone Case, Protective Case | wireless charging, tempered glass, shock proof | color, device | 7-39
electronics | Electronics > Video > Cables > HDMI | hdmi cable | HDMI Cable, Braided HDMI Cord | gold plated, blu ray, dolby vision | length, pieces | 6-48
electronics | Electronics > Portable Audio > Speakers | portable speaker | Bluetooth Speaker, Portable Speaker | stereo pairing, deep bass, carrying strap | color, style | 15-189
electronics | Electronics > Tablets > Stands | tablet stand | Tablet Stand, Adjustable Tablet Holder | aluminum alloy, foldable arm, cable slot | color, device | 10-55
electronics | Electronics > Wearables > Bands | smartwatch band | Watch Band, Smartwatch Strap | stainless steel clasp, quick release, sweat proof | color, size | 6-49
electronics | Electronics > Cameras > Security | security camera | Security Camera, Outdoor Camera | motion detection, night vision, two way audio | color, pieces | 24-299
fashion | Clothing, Shoes & Jewelry > Men > Shirts > T-Shirts | men's t-shirts | T-Shirt, Graphic Tee | crew neck, cotton blend, short sleeve | color, size | 9-38
fashion | Clothing, Shoes & Jewelry > Women > Dresses | women's dresses | Maxi Dress, Summer Dress | v neck, floral print, side pocket | color, size | 16-89
fashion | Clothing, Shoes & Jewelry > Shoes > Running | running shoes | Running Shoes, Walking Sneakers | mesh upper, lace up, shock absorbing | color, shoe size | 29-165
fashion | Clothing, Shoes & Jewelry > Shoes > Boots | hiking boots | Hiking Boots, Trekking Boots | ankle high, steel toe, waterproof leather | color, shoe size | 39-210
fashion | Clothing, Shoes & Jewelry > Men > Hoodies | hoodies | Hoodie, Pullover Sweatshirt | fleece lined, drawstring closure, kangaroo pocket | color, size | 18-75
fashion | Clothing, Shoes & Jewelry > Shoes > Sandals | women's sandals | Sandals, Flat Sandals | ankle strap, open toe, ethylene vinyl | color, shoe size | 14-85
fashion | Clothing, Shoes & Jewelry > Women > Jeans | women's jeans | Jeans, Skinny Denim Pants | high waist, button closure, stretch denim | color, size | 19-98
fashion | Clothing, Shoes & Jewelry > Men > Coats | winter jackets | Winter Jacket, Puffer Coat | faux fur hood, windproof shell, zipper closure | color, size | 35-249
garden | Home & Kitchen > Bedding > Pillow Covers | throw pillow covers | Throw Pillow Cover, Cushion Case | double sided, hidden zipper, cotton linen | color, dimensions | 7-36
garden | Home & Kitchen > Home Decor > Rugs | area rugs | Area Rug, Shag Carpet | stain resistant, low pile, hand tufted | color, dimensions | 25-380
garden | Home & Kitchen > Furniture > Coffee Tables | coffee tables | Coffee Table, Cocktail Table | lift top, storage shelf, metal legs | color, style | 59-420
garden | Home & Kitchen > Furniture > Office Chairs | desk chairs | Desk Chair, Office Chair | lumbar support, height adjustable, breathable mesh | color, style | 69-390
garden | Home & Kitchen > Home Decor > Wall Art | wall art | Wall Art, Canvas Print | ready to hang, abstract painting, wood frame | color, dimensions | 14-190
garden | Home & Kitchen > Window Treatments > Curtains | window curtains | Blackout Curtains, Window Drapes | thermal insulated, grommet top, light filtering | color, dimensions | 15-110
garden | Home & Kitchen > Furniture > Bed Frames | bed frames | Bed Frame, Platform Bed | box spring free, wood slats, under bed storage | color, bed size | 89-620
garden | Home & Kitchen > Lighting > Table Lamps | table lamps | Table Lamp, Bedside Lamp | glass shade, dimmable light, led bulb | color, style | 19-140
grocery | Grocery & Gourmet Food > Beverages > Tea | green tea | Green Tea, Tea Bags | caffeine free, rich in antioxidants, individually wrapped | flavor, pack | 5-42
grocery | Grocery & Gourmet Food > Snacks > Trail Mix | trail mix | Trail Mix, Nut and Fruit Mix | dried fruit, no added sugar, resealable bag | flavor, pack | 8-49
grocery | Grocery & Gourmet Food > Snacks > Bars | protein bars | Protein Bar, Snack Bar | low carb, keto friendly, grass fed whey | flavor, pack | 12-58
grocery | Grocery & Gourmet Food > Beverages > Coffee | coffee beans | Coffee Beans, Ground Coffee | medium roast, fair trade, single origin | flavor, pack | 9-68
grocery | Grocery & Gourmet Food > Chocolate | dark chocolate | Dark Chocolate, Chocolate Bar | soy free, fair trade cocoa, hand crafted | flavor, pack | 4-39
grocery | Grocery & Gourmet Food > Pasta & Noodles | pasta noodles | Pasta, Noodles | whole grain, ready to eat, quick cooking | style, pack | 4-34
grocery | Grocery & Gourmet Food > Oils > Olive Oil | olive oil | Olive Oil, Extra Virgin Olive Oil | cold pressed, first harvest, glass bottle | volume, pack | 8-64
grocery | Grocery & Gourmet Food > Snacks > Popcorn | popcorn | Popcorn, Kettle Corn | air popped, whole grain corn, sea salt | flavor, pack | 5-37
""".strip().splitlines()
)

OPTION_VALUES = {
    "color": _words(
        "black, white, navy blue, forest green, wine red, light grey, dark brown, blush pink, royal purple, mustard yellow, "
        "sky blue, beige, charcoal, burnt orange, teal, ivory, olive, rose gold, silver, coral, khaki, burgundy"
    ),
    "size": _words("x-small, small, medium, large, x-large, xx-large, 3x-large"),
    "volume": _words("2 fl oz, 4 fl oz, 8 fl oz, 12 fl oz, 16 fl oz, 32 fl oz, 500 ml, 1 liter"),
    "shoe size": _words("5.5, 6, 6.5, 7, 7.5 wide, 8, 8.5, 9, 9.5 wide, 10, 11, 12"),
    "scent": _words("lavender, coconut, unscented, citrus, rose, vanilla, tea tree, sandalwood, peppermint"),
    "flavor": _words(
        "honey lemon, salted caramel, peanut butter, mint, mixed berry, vanilla bean, hazelnut, cinnamon, original, mango"
    ),
    "pack": _words("pack of 1, pack of 2, pack of 3, pack of 6, pack of 12, 8 ounce bag, 16 ounce bag, 2 pound box"),
    "pieces": _words("1 piece, 2 pieces, 4 pieces, 6 pieces, 10 pieces, 12 pieces"),
    "length": _words("3 feet, 6 feet, 10 feet, 15 feet, 25 feet, 12 inch, 16 inch, 20 inch, 24 inch"),
    "device": _words(
        "iphone 11, iphone 12 pro, iphone 13, galaxy s20, galaxy s21 ultra, pixel 6, ipad air, ipad mini, galaxy tab s7"
    ),
    "style": _words("classic, modern, vintage, industrial, compact, deluxe, sport, farmhouse, minimalist"),
    "dimensions": _words(
        "18x18 inch, 20x20 inch, 24x36 inch, 52x84 inch, 52x95 inch, 2x3 feet, 3x5 feet, 5x7 feet, 8x10 feet"
    ),
    "bed size": _words("twin, twin xl, full, queen, king, california king"),
}

BRANDS = _words(
    "Aurelia, Bexley, CORVANE, Dunmore, Elmwood & Co, Fenwick, GLOWRA, Hartley, Ivoria, Jasper Lane, Kestrel, LUMIQ, "
    "Maplebrook, Nordheim, Oakhaven, PRIMAVO, Quillon, Ravello, Sundara, TREKNOR, Umbria, Verdano, Willowby, XANDRO, "
    "Yarrow, ZEPHIRA, Alpenglow, Brightwater, Cedar & Salt, DAYTONIQ, Everlind, Foxglove"
)

AUDIENCES = _words(
    "for Women, for Men, for Adults, for Home and Office, for Travel, for Everyday Use, for Kids and Teens, as a Gift"
)

FILLERS = _words(
    "2022 Upgraded, New Arrival, Best Value, Premium, Professional, Deluxe Edition, Limited, Original, Great Gift Idea, "
    "100% Satisfaction, Bulk, Classic"
)
