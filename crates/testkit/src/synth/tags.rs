//! Tags with the frequencies of real data; see the parent module for the numbers.

use std::borrow::Cow;

use osmill_model::Tag;

use super::weighted;
use crate::random::{Random, mix};

/// Tags under construction.
pub(super) type Tags = Vec<(&'static str, Cow<'static, str>)>;

/// The tags as the block builder takes them.
pub(super) fn views(tags: &Tags) -> impl Iterator<Item = Tag<'_>> {
    tags.iter().map(|(key, value)| Tag {
        key: key.as_bytes(),
        value: value.as_bytes(),
    })
}

const FIRST: &[&str] = &[
    "Oak",
    "Mill",
    "Church",
    "Station",
    "Lindenallee",
    "Bahnhof",
    "Rue de la Gare",
    "Calle Mayor",
    "Hill",
    "River",
    "Škol",
    "Søndre",
    "Центральная",
    "中央",
    "Żwirowa",
    "Garden",
    "North",
    "Park",
    "Castle",
    "Market",
];
const SECOND: &[&str] = &[
    " Street",
    " Road",
    " Lane",
    "straße",
    "gasse",
    " Avenue",
    "vej",
    " улица",
    "通り",
    " Way",
    " Place",
    "",
];

/// A name, one of a few dozen of the place or one of its own.
fn name(place: u64, random: &mut Random) -> String {
    let number = random.below(60);
    let draw = mix(place << 8 | number);
    let first = FIRST[(draw % FIRST.len() as u64) as usize];
    let second = SECOND[(draw >> 16) as usize % SECOND.len()];
    match number {
        0..40 => format!("{first}{second}"),
        _ => format!("{first}{second} {}", draw >> 40 & 0xff),
    }
}

fn address(place: u64, tags: &mut Tags, random: &mut Random) {
    tags.push((
        "addr:city",
        format!("{}by", FIRST[place as usize % FIRST.len()]).into(),
    ));
    tags.push(("addr:housenumber", (1 + random.below(90)).to_string().into()));
    tags.push(("addr:postcode", format!("{:05}", mix(place) % 100_000).into()));
    tags.push(("addr:street", name(place, random).into()));
}

/// Per mille of a kind that get a tag, its key, and its values by weight.
type Extra = (f64, &'static str, &'static [(u32, &'static str)]);

fn extras(tags: &mut Tags, list: &[Extra], random: &mut Random) {
    for (share, key, values) in list {
        if random.chance(share / 1000.0) {
            tags.push((key, weighted(random, values).into()));
        }
    }
}

const AMENITIES: &[(u32, &str)] = &[
    (30, "bench"),
    (18, "parking"),
    (16, "restaurant"),
    (9, "cafe"),
    (8, "school"),
    (6, "post_box"),
    (5, "fast_food"),
    (4, "place_of_worship"),
    (4, "bank"),
];
const SOURCES: &[(u32, &str)] = &[
    (50, "Bing"),
    (20, "survey"),
    (15, "BING"),
    (15, "microsoft/BuildingFootprints"),
];

/// Of a node: 5.5 % have any.
pub(super) fn node(place: u64, random: &mut Random) -> Tags {
    let mut tags = Tags::new();
    match random.below(10_000) {
        0..165 => address(place, &mut tags, random),
        165..232 => tags.push(("natural", "tree".into())),
        232..280 => {
            tags.push(("highway", "crossing".into()));
            extras(
                &mut tags,
                &[(
                    600.0,
                    "crossing",
                    &[(6, "uncontrolled"), (4, "zebra"), (3, "marked")],
                )],
                random,
            );
        }
        280..300 => {
            tags.push(("highway", "bus_stop".into()));
            tags.push(("name", name(place, random).into()));
            tags.push(("public_transport", "platform".into()));
        }
        300..345 => {
            tags.push(("amenity", weighted(random, AMENITIES).into()));
            if random.chance(0.5) {
                tags.push(("name", name(place, random).into()));
            }
        }
        345..365 => tags.push((
            "barrier",
            weighted(random, &[(6, "gate"), (4, "bollard"), (2, "lift_gate")]).into(),
        )),
        365..385 => tags.push(("power", weighted(random, &[(5, "tower"), (5, "pole")]).into())),
        385..395 => {
            tags.push((
                "shop",
                weighted(
                    random,
                    &[(4, "convenience"), (3, "supermarket"), (3, "hairdresser")],
                )
                .into(),
            ));
            tags.push(("name", name(place, random).into()));
            tags.push(("opening_hours", "Mo-Fr 08:00-18:00; Sa 09:00-14:00".into()));
        }
        395..550 => {
            let editors = &[(7, "JOSM"), (3, "Potlatch 0.10f")];
            tags.push(("created_by", weighted(random, editors).into()));
        }
        _ => {}
    }
    tags
}

const HIGHWAYS: &[(u32, &str)] = &[
    (354, "residential"),
    (132, "service"),
    (105, "track"),
    (99, "footway"),
    (62, "path"),
    (57, "unclassified"),
    (35, "primary"),
    (31, "tertiary"),
    (30, "secondary"),
    (24, "steps"),
    (20, "cycleway"),
    (12, "motorway"),
    (10, "trunk"),
];
const HIGHWAY_EXTRAS: &[Extra] = &[
    (
        170.0,
        "surface",
        &[
            (60, "asphalt"),
            (15, "gravel"),
            (12, "unpaved"),
            (8, "paving_stones"),
            (5, "ground"),
        ],
    ),
    (220.0, "oneway", &[(70, "yes"), (28, "no"), (2, "-1")]),
    (
        80.0,
        "maxspeed",
        &[(40, "50"), (30, "30"), (10, "80"), (5, "30 mph")],
    ),
    (75.0, "lit", &[(9, "yes"), (1, "no")]),
    (70.0, "lanes", &[(7, "2"), (2, "1"), (1, "3")]),
    (45.0, "access", &[(6, "private"), (3, "yes"), (1, "permissive")]),
    (45.0, "bicycle", &[(8, "yes"), (2, "no")]),
    (45.0, "foot", &[(9, "yes"), (1, "no")]),
    (25.0, "bridge", &[(1, "yes")]),
    (120.0, "source", SOURCES),
];

/// Of a way, by its shape.
pub(super) fn way(closed: bool, place: u64, random: &mut Random) -> Tags {
    let mut tags = Tags::new();
    if random.chance(0.011) {
        return tags;
    }
    if !closed {
        if random.chance(0.89) {
            let class = weighted(random, HIGHWAYS);
            tags.push(("highway", class.into()));
            if class == "track" {
                extras(
                    &mut tags,
                    &[(470.0, "tracktype", &[(3, "grade2"), (3, "grade3"), (2, "grade1")])],
                    random,
                );
            }
            if random.chance(0.34) {
                tags.push(("name", name(place, random).into()));
            }
            if random.chance(0.07) {
                tags.push(("ref", format!("D{}", random.below(999)).into()));
            }
            extras(&mut tags, HIGHWAY_EXTRAS, random);
        } else {
            let others: &[(u32, (&str, &str))] = &[
                (30, ("barrier", "wall")),
                (20, ("barrier", "fence")),
                (20, ("waterway", "stream")),
                (12, ("railway", "rail")),
                (10, ("power", "line")),
                (8, ("natural", "coastline")),
            ];
            let (key, value) = weighted(random, others);
            tags.push((key, value.into()));
        }
        return tags;
    }
    match random.below(1000) {
        0..650 => {
            let kinds = &[
                (83, "yes"),
                (6, "house"),
                (4, "residential"),
                (3, "garage"),
                (2, "apartments"),
                (2, "industrial"),
            ];
            tags.push(("building", weighted(random, kinds).into()));
            if random.chance(0.18) {
                address(place, &mut tags, random);
            }
            extras(
                &mut tags,
                &[
                    (200.0, "source", SOURCES),
                    (50.0, "building:levels", &[(5, "2"), (3, "1"), (2, "4")]),
                ],
                random,
            );
        }
        650..750 => {
            let uses = &[
                (3, "forest"),
                (3, "farmland"),
                (2, "residential"),
                (2, "meadow"),
                (1, "grass"),
            ];
            tags.push(("landuse", weighted(random, uses).into()));
        }
        750..850 => tags.push((
            "natural",
            weighted(random, &[(4, "water"), (4, "wood"), (2, "scrub")]).into(),
        )),
        850..900 => tags.push((
            "leisure",
            weighted(random, &[(4, "pitch"), (3, "swimming_pool"), (3, "park")]).into(),
        )),
        900..940 => {
            tags.push(("amenity", weighted(random, AMENITIES).into()));
            tags.push(("name", name(place, random).into()));
        }
        _ => {
            tags.push((
                "highway",
                weighted(random, &[(5, "pedestrian"), (3, "service"), (2, "residential")]).into(),
            ));
            tags.push(("area", "yes".into()));
        }
    }
    tags
}

/// Of a relation: its type first.
pub(super) fn relation(place: u64, random: &mut Random) -> Tags {
    let kinds = &[
        (37, "multipolygon"),
        (21, "restriction"),
        (20, "route"),
        (5, "associatedStreet"),
        (4, "public_transport"),
        (4, "boundary"),
        (3, "route_master"),
        (3, "site"),
    ];
    let kind = weighted(random, kinds);
    let mut tags: Tags = vec![("type", kind.into())];
    match kind {
        "multipolygon" => extras(
            &mut tags,
            &[
                (550.0, "natural", &[(6, "reef"), (2, "water"), (2, "wood")]),
                (120.0, "landuse", &[(4, "forest"), (2, "residential")]),
                (110.0, "building", &[(9, "yes"), (1, "apartments")]),
            ],
            random,
        ),
        "restriction" => extras(
            &mut tags,
            &[(
                1000.0,
                "restriction",
                &[
                    (6, "only_straight_on"),
                    (6, "no_u_turn"),
                    (5, "no_left_turn"),
                    (2, "no_right_turn"),
                ],
            )],
            random,
        ),
        "route" => {
            extras(
                &mut tags,
                &[
                    (
                        1000.0,
                        "route",
                        &[(8, "bus"), (7, "hiking"), (3, "bicycle"), (1, "train")],
                    ),
                    (700.0, "network", &[(5, "lwn"), (3, "rwn"), (2, "ncn")]),
                ],
                random,
            );
            tags.push(("ref", random.below(400).to_string().into()));
        }
        "boundary" => {
            tags.push(("boundary", "administrative".into()));
            extras(
                &mut tags,
                &[(1000.0, "admin_level", &[(5, "8"), (3, "9"), (1, "6"), (1, "4")])],
                random,
            );
        }
        _ => {}
    }
    if random.chance(0.36) {
        tags.push(("name", name(place, random).into()));
    }
    tags
}

/// The role of a way in a relation with these tags.
pub(super) fn role(tags: &Tags, random: &mut Random) -> &'static str {
    match &*tags[0].1 {
        "multipolygon" | "boundary" => weighted(random, &[(8, "outer"), (2, "inner")]),
        "restriction" => weighted(random, &[(1, "from"), (1, "to")]),
        "associatedStreet" => weighted(random, &[(1, "street"), (4, "house")]),
        _ => weighted(random, &[(9, ""), (1, "forward")]),
    }
}
