//! `osmill inspect`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use osmill_engine::{Error, Input, Job, Plan, Result};
use osmill_model::{ElementId, Kind, KindSet};
use osmill_ops::filter::TagFilter;
use osmill_ops::inspect::{self, Extended, Inspection, METADATA_NAMES, NodeStatistics, Shown};
use osmill_ops::tags::{self, TagCount};
use serde_json::{Value, json};

use crate::args::{self, Common, InspectArgs, TagOrder, TagPart};
use crate::render::{self, bytes, number};

pub fn run(common: &Common, args: &InspectArgs) -> Result<ExitCode> {
    let job = common.job()?;
    let reads = args.tags || args.nodes || args.extended || common.verbose;
    let overviews = !args.tags && !args.nodes && args.show.is_none();
    if overviews && let Some((head, stream)) = inspect::head(&job, &args.file)? {
        refuse_blocks(&head, args)?;
        let extended = match args.extended || asks_data(&head, args) {
            true => Some(inspect::extended_stream(&job, stream)?),
            false => None,
        };
        render::print(&overview(&head, extended.as_ref(), args)?)?;
        if reads || common.log == args::LogFormat::Json {
            render::account(common, "inspect", &job);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (input, inspection) = inspect::inspect(&job, &args.file)?;
    refuse_blocks(&inspection, args)?;
    let mut code = ExitCode::SUCCESS;
    let text = if args.tags {
        count_tags(&job, &input, &inspection.plan, args)?
    } else if args.blocks {
        list_blocks(&job, &input, inspection.plan, args.json)?
    } else if args.nodes {
        let statistics = inspect::nodes(&job, &input, &inspection.plan)?;
        if args.json {
            format!("{:#}\n", json!(statistics))
        } else {
            render_nodes(&statistics)
        }
    } else if let Some(id) = &args.show {
        let id: ElementId = id.parse().map_err(|e| Error::Usage(format!("--show: {e}")))?;
        let found = inspect::show(&job, &input, &inspection.plan, id)?;
        if found.is_empty() {
            eprintln!("osmill inspect: {}: there is no {id}", args.file.display());
            code = ExitCode::from(1);
        }
        if args.json {
            format!("{:#}\n", json!(found))
        } else {
            found.iter().map(render_shown).collect()
        }
    } else {
        let extended = match args.extended || asks_data(&inspection, args) {
            true => Some(inspect::extended(&job, &input, &inspection.plan)?),
            false => None,
        };
        overview(&inspection, extended.as_ref(), args)?
    };
    render::print(&text)?;
    if reads || common.log == args::LogFormat::Json {
        render::account(common, "inspect", &job);
    }
    Ok(code)
}

/// Whether a value is asked for that only a full reading gives; it is worth one.
fn asks_data(inspection: &Inspection, args: &InspectArgs) -> bool {
    args.get.as_ref().is_some_and(|name| {
        let known = inspection.to_json(None);
        inspect::get(&known, name).is_err() && (name.starts_with("data") || name.starts_with("metadata"))
    })
}

/// Text has no blobs to list.
fn refuse_blocks(inspection: &Inspection, args: &InspectArgs) -> Result<()> {
    match inspection.text {
        Some(format) if args.blocks => Err(Error::Usage(format!(
            "{}: this is {format}, which has no blobs; only PBF has",
            args.file.display()
        ))),
        _ => Ok(()),
    }
}

/// What is known of a file.
fn overview(inspection: &Inspection, extended: Option<&Extended>, args: &InspectArgs) -> Result<String> {
    if let Some(name) = &args.get {
        let value = inspection.to_json(extended);
        return Ok(match inspect::get(&value, name)? {
            Value::String(text) => format!("{text}\n"),
            Value::Array(values) => {
                format!(
                    "{}\n",
                    values.iter().map(Value::to_string).collect::<Vec<_>>().join(",")
                )
            }
            value => format!("{value}\n"),
        });
    }
    if args.json {
        return Ok(format!("{:#}\n", inspection.to_json(extended)));
    }
    Ok(render_overview(inspection, extended))
}

fn render_overview(inspection: &Inspection, extended: Option<&Extended>) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<22}{value}");
    };
    let header = &inspection.plan.header;
    line("File", inspection.name.clone());
    line(
        "Size",
        format!("{} ({} bytes)", bytes(inspection.size), number(inspection.size)),
    );
    if let Some(format) = inspection.text {
        line("Format", format.to_string());
    }
    line(
        "Written by",
        header
            .writing_program
            .clone()
            .unwrap_or_else(|| "not said".into()),
    );
    if let Some(source) = &header.source {
        line("Source", source.clone());
    }
    if inspection.text.is_none() {
        line("Required features", header.required_features.join(", "));
        line("Optional features", join_or(&header.optional_features, "none"));
    }
    for bbox in header.areas() {
        let [left, bottom, right, top] = inspect::header_box_degrees(&bbox);
        line("Bounding box", format!("({left},{bottom},{right},{top})"));
    }
    if let Some(time) = header.replication_timestamp {
        line("Replication time", time.to_string());
    }
    if let Some(sequence) = header.replication_sequence {
        line("Replication sequence", sequence.to_string());
    }
    if let Some(url) = &header.replication_base_url {
        line("Replication server", url.clone());
    }
    if inspection.text.is_none() {
        line("Blobs", blobs_text(&inspection.plan));
    }
    let claimed = inspection.text.is_none().then(|| header.claims_sorted());
    match (extended, &inspection.index) {
        (Some(extended), _) => render_extended(&mut text, claimed, extended),
        (None, Some(index)) => {
            let mut line = |name: &str, value: String| {
                let _ = writeln!(text, "{name:<22}{value}");
            };
            if let Some(bbox) = &index.bbox {
                line("Data bounding box", bbox.to_string());
            }
            line("Sorted", sorted_text(claimed, index.sorted));
            for kind in Kind::ALL {
                line(
                    &plural(kind),
                    count_and_ids(index.counts.of(kind), index.ids[kind as usize]),
                );
            }
            line("References", number(index.refs));
            for (kinds, (blobs, compressed)) in index.blobs.iter().filter(|_| claimed.is_some()) {
                let name = format!("Blobs of {}", KindSet::from_bits(*kinds));
                line(&name, format!("{}, {}", number(*blobs), bytes(*compressed)));
            }
        }
        (None, None) if inspection.text.is_some() => {
            let _ = writeln!(
                text,
                "\nText has no index, so its beginning does not tell what is inside. 'osmill inspect -e' reads it all."
            );
        }
        (None, None) => {
            let _ = writeln!(
                text,
                "\nThere is no index, so the headers do not tell what is inside. 'osmill inspect -e' reads it all;\n\
                 'osmill cat FILE -o OUT' writes a copy with an index."
            );
        }
    }
    text
}

/// How many blobs there are, by codec, and how many have index records.
fn blobs_text(plan: &Plan) -> String {
    let indexed = plan.blobs.iter().filter(|blob| blob.index.is_some()).count();
    let mut codecs: BTreeMap<&str, u64> = BTreeMap::new();
    for blob in &plan.blobs {
        *codecs
            .entry(blob.codec.map_or("unknown", |codec| codec.name()))
            .or_default() += 1;
    }
    let codecs: Vec<_> = codecs
        .iter()
        .map(|(name, n)| format!("{} {name}", number(*n)))
        .collect();
    format!(
        "{} ({}), {} with index{}",
        number(plan.blobs.len() as u64),
        join_or(&codecs, "empty"),
        if indexed == plan.blobs.len() {
            "all".into()
        } else {
            number(indexed as u64)
        },
        if plan.other_blobs > 0 {
            format!(", {} of unknown type", plan.other_blobs)
        } else {
            String::new()
        }
    )
}

fn join_or(words: &[String], none: &str) -> String {
    if words.is_empty() {
        none.into()
    } else {
        words.join(", ")
    }
}

fn plural(kind: Kind) -> String {
    match kind {
        Kind::Node => "Nodes",
        Kind::Way => "Ways",
        Kind::Relation => "Relations",
    }
    .into()
}

fn count_and_ids(count: u64, ids: Option<(i64, i64)>) -> String {
    match ids {
        Some((min, max)) => format!("{}, ids {min} to {max}", number(count)),
        None => number(count),
    }
}

/// Whether a file is sorted, and whether its header claims that; text claims nothing.
fn sorted_text(claimed: Option<bool>, sorted: bool) -> String {
    match (claimed, sorted) {
        (Some(true), true) => "yes, as the header says",
        (Some(true), false) => "no, but the header says yes",
        (Some(false), true) => "yes, but the header does not say so",
        (Some(false), false) => "no, and the header does not say so",
        (None, true) => "yes",
        (None, false) => "no",
    }
    .into()
}

fn render_extended(text: &mut String, claimed: Option<bool>, all: &Extended) {
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<22}{value}");
    };
    if let Some(bbox) = &all.bbox {
        line("Data bounding box", bbox.to_string());
    }
    if let Some((first, last)) = all.timestamps {
        line("Times", format!("{first} to {last}"));
    }
    line("Sorted", sorted_text(claimed, all.is_sorted()));
    if let Some(offence) = all.first_descent {
        line(
            "  out of order",
            format!(
                "{}, the first is {} after {} in blob {}",
                number(all.descents),
                offence.element,
                offence.previous,
                offence.blob
            ),
        );
    }
    if let Some(offence) = all.first_repeat {
        line(
            "  repeated",
            format!(
                "{}, the first is {} in blob {}",
                number(all.repeats),
                offence.element,
                offence.blob
            ),
        );
    }
    for kind in Kind::ALL {
        line(
            &plural(kind),
            count_and_ids(all.counts.of(kind), all.ids[kind as usize]),
        );
        let (tagged, tags) = (all.tagged.of(kind), all.tags.of(kind));
        if tags > 0 {
            line(
                "  tagged",
                format!("{}, with {} tags", number(tagged), number(tags)),
            );
        }
        let negative = all.negative.of(kind);
        if negative > 0 {
            line("  negative ids", number(negative));
        }
    }
    line("Node references", with_largest(all.refs, all.largest[0], "w"));
    line("Relation members", with_largest(all.members, all.largest[1], "r"));
    if all.located_ways > 0 {
        line("Ways with locations", number(all.located_ways));
    }
    if all.deleted > 0 {
        line("Deleted elements", number(all.deleted));
    }
    let total = all.counts.total();
    let metadata: Vec<_> = METADATA_NAMES
        .iter()
        .zip(all.metadata)
        .map(|(name, n)| match n {
            0 => format!("{name} none"),
            n if n == total => format!("{name} all"),
            n => format!("{name} {:.1} %", n as f64 * 100.0 / total as f64),
        })
        .collect();
    if total > 0 {
        line("Metadata", metadata.join(", "));
    }
    // How text is cut into blocks says nothing of the file.
    for (kinds, sizes) in all.bytes.iter().filter(|_| claimed.is_some()) {
        line(
            &format!("Blobs of {}", KindSet::from_bits(*kinds)),
            format!(
                "{}, {}, {} when decompressed",
                number(sizes.blobs),
                bytes(sizes.compressed),
                bytes(sizes.raw)
            ),
        );
    }
}

fn with_largest(total: u64, largest: Option<(u64, i64)>, letter: &str) -> String {
    match largest {
        Some((size, id)) => format!("{}, at most {} ({letter}{id})", number(total), number(size)),
        None => number(total),
    }
}

fn count_tags(job: &Job, input: &Input, plan: &Plan, args: &InspectArgs) -> Result<String> {
    let options = tags::Options {
        kinds: args::kind_set(&args.object_type),
        filter: TagFilter::parse(&args.expressions)?,
        min_count: args.min_count,
        max_count: args.max_count,
        keys: args.only != Some(TagPart::Tags),
        values: args.only != Some(TagPart::Keys),
    };
    let mut counts = tags::count(job, input, plan, &options)?;
    let name = |a: &TagCount, b: &TagCount| (&a.key, &a.value).cmp(&(&b.key, &b.value));
    match args.sort {
        TagOrder::CountDesc => {}
        TagOrder::CountAsc => counts.sort_by(|a, b| a.count.cmp(&b.count).then_with(|| name(a, b))),
        TagOrder::NameAsc => counts.sort_by(name),
        TagOrder::NameDesc => counts.sort_by(|a, b| name(b, a)),
    }
    if args.json {
        return Ok(format!("{:#}\n", json!(counts)));
    }
    let mut text = String::new();
    for TagCount { count, key, value } in &counts {
        let _ = write!(text, "{count}\t{}", Quoted(key));
        let _ = match value {
            Some(value) => writeln!(text, "\t{}", Quoted(value)),
            None => writeln!(text),
        };
    }
    Ok(text)
}

/// A string in double quotes, so that spaces at its ends and line feeds inside are seen.
struct Quoted<'t>(&'t str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        match self.0.bytes().all(is_plain) {
            true => write!(f, "\"{}\"", self.0),
            false => Value::from(self.0).fmt(f),
        }
    }
}

fn list_blocks(job: &Job, input: &Input, mut plan: Plan, as_json: bool) -> Result<String> {
    job.complete(input.file(), &mut plan)?;
    if as_json {
        let blobs: Vec<_> = plan
            .blobs
            .iter()
            .map(|blob| {
                let record = blob.index.unwrap_or_default();
                json!({
                    "number": blob.number,
                    "offset": blob.offset,
                    "size": blob.data_size,
                    "raw_size": blob.raw_size,
                    "codec": blob.codec.map(|codec| codec.name()),
                    "kinds": record.kinds.to_string(),
                    "count": { "nodes": record.counts[0], "ways": record.counts[1], "relations": record.counts[2] },
                    "first": record.first().map(|id| id.to_string()),
                    "last": record.last().map(|id| id.to_string()),
                    "sorted": record.sorted,
                    "references": record.refs,
                    "bbox": record.bbox.map(|b| [
                        b.min.lon_degrees(), b.min.lat_degrees(), b.max.lon_degrees(), b.max.lat_degrees(),
                    ]),
                })
            })
            .collect();
        return Ok(format!("{:#}\n", json!(blobs)));
    }
    let mut text =
        String::from("  blob        offset      bytes  raw bytes codec  elements  kinds          ids\n");
    for blob in &plan.blobs {
        let record = blob.index.unwrap_or_default();
        let ids = match (record.first(), record.last()) {
            (Some(first), Some(last)) => format!("{first} to {last}"),
            _ => String::new(),
        };
        let _ = writeln!(
            text,
            "{:>6} {:>13} {:>10} {:>10} {:<5} {:>9}  {:<14} {ids}{}",
            blob.number,
            blob.offset,
            blob.data_size,
            blob.raw_size.map_or("?".into(), |n| n.to_string()),
            blob.codec.map_or("?", |codec| codec.name()),
            record.count(),
            record.kinds.to_string(),
            if record.sorted { "" } else { "  not sorted" },
        );
    }
    let _ = writeln!(text);
    for kinds in 1..8 {
        let kinds = KindSet::from_bits(kinds);
        let blobs = || {
            plan.blobs
                .iter()
                .filter(|blob| blob.index.is_some_and(|record| record.kinds == kinds))
        };
        let spread = |mut values: Vec<u64>| {
            values.sort_unstable();
            format!(
                "{} / {} / {}",
                number(values[0]),
                number(values[values.len() / 2]),
                number(values[values.len() - 1])
            )
        };
        if blobs().next().is_some() {
            let _ = writeln!(
                text,
                "{} blobs of {kinds}: elements {} (least / median / most), bytes {}",
                number(blobs().count() as u64),
                spread(blobs().filter_map(|b| b.index).map(|r| r.count()).collect()),
                spread(blobs().map(|b| u64::from(b.data_size)).collect()),
            );
        }
    }
    Ok(text)
}

fn render_nodes(all: &NodeStatistics) -> String {
    let share = if all.nodes == 0 {
        0.0
    } else {
        all.tagged as f64 * 100.0 / all.nodes as f64
    };
    let mut text = format!(
        "{:<22}{}\n{:<22}{} ({share:.1} %)\n{:<22}{}\n",
        "Nodes",
        count_and_ids(all.nodes, all.ids),
        "Tagged",
        number(all.tagged),
        "Without location",
        number(all.without_location),
    );
    if let Some((min, max)) = all.ids.filter(|_| all.nodes > 0) {
        let span = max.wrapping_sub(min).unsigned_abs() + 1;
        let _ = writeln!(
            text,
            "{:<22}one in {:.1}",
            "Ids in use",
            span as f64 / all.nodes as f64
        );
    }
    let _ = writeln!(
        text,
        "{:<22}id {:.1} bits, location {:.1} bits, both {:.2} bytes a node",
        "In packed blocks of 64",
        all.id_bits,
        all.location_bits,
        (all.id_bits + all.location_bits) / 8.0
    );
    text
}

fn render_shown(shown: &Shown) -> String {
    let mut text = format!("{} (blob {})\n", shown.id, shown.blob);
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "  {name:<12}{value}");
        }
    };
    line("version", shown.version.map(|v| v.to_string()));
    line("timestamp", shown.timestamp.clone());
    line("changeset", shown.changeset.map(|c| c.to_string()));
    line("user", shown.user.clone().filter(|user| !user.is_empty()));
    line("uid", shown.uid.map(|uid| uid.to_string()));
    line("visible", shown.visible.map(|visible| visible.to_string()));
    line(
        "location",
        shown.location.map(|[lon, lat]| format!("{lon},{lat}")),
    );
    if !shown.tags.is_empty() {
        let _ = writeln!(text, "  tags");
        for (key, value) in &shown.tags {
            let _ = writeln!(text, "    {} = {}", Quoted(key), Quoted(value));
        }
    }
    if !shown.refs.is_empty() {
        let _ = writeln!(text, "  nodes ({})", shown.refs.len());
        for (id, location) in &shown.refs {
            let location = location
                .map(|[lon, lat]| format!(" at {lon},{lat}"))
                .unwrap_or_default();
            let _ = writeln!(text, "    n{id}{location}");
        }
    }
    if !shown.members.is_empty() {
        let _ = writeln!(text, "  members ({})", shown.members.len());
        for (id, role) in &shown.members {
            let role = if role.is_empty() {
                String::new()
            } else {
                format!(" as {}", Quoted(role))
            };
            let _ = writeln!(text, "    {id}{role}");
        }
    }
    text
}
