//! `osmill check`.

use std::fmt::Write;
use std::process::ExitCode;

use osmill_engine::Result;
use osmill_model::Kind;
use osmill_ops::check::{self, IdReport, RefOptions, RefReport};
use osmill_ops::inspect;
use serde_json::json;

use crate::args::{CheckArgs, Common};
use crate::render::{self, counts, number};

pub fn run(common: &Common, args: &CheckArgs) -> Result<ExitCode> {
    let job = common.job()?;
    let (input, inspection) = inspect::inspect(&job, &args.file)?;
    let asks_refs = args.refs || args.check_relations || args.show_ids;
    let both = !args.ids && !asks_refs;
    let mut good = true;
    let mut value = json!({});
    let mut text = String::new();
    if args.ids || both {
        let report = check::ids(&job, &input, &inspection.plan)?;
        good &= report.is_good();
        value["ids"] = json!(report);
        render_ids(&mut text, &report);
    }
    if asks_refs || both {
        let options = RefOptions {
            relations: args.check_relations,
            list: args.show_ids,
        };
        let report = check::refs(&job, &input, &inspection.plan, options)?;
        good &= report.is_good();
        value["refs"] = json!(report);
        render_refs(&mut text, &report);
    }
    if args.json {
        render::print(&format!("{value:#}\n"))?;
    } else if !common.quiet || args.show_ids {
        render::print(&text)?;
    }
    render::account(common, "check", &job);
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn render_ids(text: &mut String, report: &IdReport) {
    let _ = writeln!(text, "Ids of {}:", counts(&report.count));
    match report.first_out_of_order {
        None => {
            let _ = writeln!(text, "  Sorted by kind and id: yes");
        }
        Some(offence) => {
            let _ = writeln!(
                text,
                "  Sorted by kind and id: no; {} out of order, the first is {} after {} in blob {}",
                number(report.out_of_order),
                offence.element,
                offence.previous,
                offence.blob
            );
        }
    }
    match &report.first_duplicate {
        None => {
            let _ = writeln!(text, "  Duplicates: none");
        }
        Some(id) => {
            let _ = writeln!(text, "  Duplicates: {}, such as {id}", number(report.duplicates));
        }
    }
}

fn render_refs(text: &mut String, report: &RefReport) {
    for dangling in &report.dangling {
        let _ = writeln!(text, "{} in {}", dangling.missing, dangling.from);
    }
    let _ = writeln!(text, "References of {}:", counts(&report.count));
    let _ = writeln!(
        text,
        "  Nodes in ways missing: {}",
        number(report.missing_way_nodes)
    );
    if let (Some(members), Some(elements)) = (&report.missing_members, &report.missing_member_elements) {
        for kind in Kind::ALL {
            let name = format!("{kind}s in relations missing:");
            let (members, elements) = (number(members.of(kind)), number(elements.of(kind)));
            let _ = writeln!(
                text,
                "  {}{} {members} ({elements} different)",
                name[..1].to_uppercase(),
                &name[1..]
            );
        }
    }
}
