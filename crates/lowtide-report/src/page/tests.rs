//! Promises of a page: each picture is well-formed, nothing is from elsewhere, every row is named,
//! and no text of a result becomes a part of the page.

use roxmltree::Document as Xml;
use serde_json::{Value, json};

use super::{Document, DocumentError, page};

fn document(value: &Value) -> Document {
    Document::parse("a <b>.json", &value.to_string()).unwrap()
}

/// A result with every kind of picture, and names that are markup.
fn all_kinds() -> Vec<Document> {
    let latency = json!({"mean": 20.0, "p50": 12.0, "p99": 900.0, "p999": 4200.0});
    let samples = json!([
        {"tps": 10.0, "read_kib": 40.0, "util_pct": 90.0},
        {"tps": 12.0, "read_kib": 44.0, "util_pct": 91.5},
    ]);
    let rows = json!([
        {"workload": "high-thrash", "world": "sim", "system": "lowtide", "policy": "mglru<1>&",
         "ops_per_s": 78989.0, "round_ops_per_s": [70000.0, 79000.0, 90000.0],
         "latency_us": latency, "samples": samples, "seed": 1},
        {"workload": "high-thrash", "world": "sim", "system": "lowtide", "policy": "lru",
         "ops_per_s": 97974.0, "latency_us": latency, "seed": 1},
        {"workload": "high-thrash", "world": "real", "system": "published", "source": "v7",
         "policy": "lru", "ops_per_s": 93714.0},
        {"workload": "high-thrash", "world": "real", "system": "</script>\"mmap'", "policy": null,
         "ops_per_s": 5.0},
    ]);
    let verdict = json!([
        {"what": "a < b", "value": 1.19, "least": 1.15, "most": 1.5, "published": "1.27 & more",
         "outcome": "reproduced"},
        {"policy": "lru", "what": "read", "value": 0.9, "least": 0.5, "published": "-",
         "outcome": "not reproduced"},
        {"what": "b", "least": 0.5, "published": "-", "outcome": "not measured"},
    ]);
    let first = json!({
        "lowtide": "0.1.0",
        "machine": {"name": "thrash", "cpus": 2, "date": "2026-11-27T00:00:00Z"},
        "command": "lowtide-lab sim high-thrash --bpf 'a<b>.o'", "rows": rows, "verdict": verdict,
        "figures": [{"variant": "10G", "source": "v7", "metric": "throughput", "unit": "ops/s",
            "arm": "before", "published": 60653.5, "ours": 78989.0}],
    });
    let mut points = Vec::new();
    for policy in ["mglru", "lru", "opt"] {
        for (budget, ratio) in [(65_536, 0.9), (1 << 20, 0.4), (1 << 24, 0.1)] {
            points.push(json!({"workload": "trace", "world": "sim", "system": "lowtide",
                "policy": policy, "max_bytes": budget, "miss_ratio": ratio}));
        }
    }
    let curves = json!({"lowtide": "0.1.0", "machine": {"name": "plain"}, "rows": points});
    vec![document(&first), document(&curves)]
}

/// The elements `svg` that are in no other one.
fn pictures(html: &str) -> Vec<&str> {
    let (mut found, mut depth, mut began) = (Vec::new(), 0, 0);
    for (at, _) in html.match_indices('<') {
        if html[at..].starts_with("<svg") {
            if depth == 0 {
                began = at;
            }
            depth += 1;
        } else if html[at..].starts_with("</svg>") {
            depth -= 1;
            if depth == 0 {
                found.push(&html[began..at + "</svg>".len()]);
            }
        }
    }
    assert_eq!(depth, 0, "every picture ends");
    found
}

#[test]
fn each_picture_is_well_formed_and_draws_numbers() {
    let html = page("A page", &[], &all_kinds());
    let found = pictures(&html);
    assert!(found.len() > 8, "{}", found.len());
    for svg in found {
        let xml = Xml::parse(svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
        let drawn = xml.descendants().flat_map(|node| node.attributes());
        for attribute in drawn {
            let value = attribute.value();
            assert!(!value.contains("NaN") && !value.contains("inf"), "{}", attribute.name());
        }
    }
}

#[test]
fn bars_lines_percentiles_and_seconds_are_all_there() {
    let html = page("A page", &[], &all_kinds());
    let count = |of: &str| html.matches(of).count();
    // Four bars, one of them with a line from its least to its most, two whiskers at its ends.
    let bars = &html[html.find("Operations a second").unwrap()..html.find("Latency of").unwrap()];
    assert_eq!(bars.matches("<rect").count(), 4 + 3, "four bars, and a legend of three kinds");
    assert_eq!(bars.matches("class=\"spread\"").count(), 3);
    assert!(bars.contains("70\u{202f}000") && bars.contains("90\u{202f}000"), "and as a table");
    assert_eq!(count("<polyline"), 3 + 2, "three curves, two series of the device");
    assert_eq!(count("stroke-dasharray"), 2, "the bound, and its legend");
    for text in ["p99.9", "4.2\u{a0}ms", "second by second", "memory budget", "64K"] {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let html = page("A page", &[], &all_kinds());
    for from in ["src=", "<link", "@import", "@font-face", "url(http", "<img", "<iframe", "//cdn"] {
        assert!(!html.contains(from), "{from}");
    }
    let elsewhere = html.matches("http").count();
    assert_eq!(elsewhere, html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
    assert_eq!(html.matches("<script").count(), 1);
    assert!(html.contains("<script type=\"application/json\""), "data, which no browser runs");
}

#[test]
fn every_row_is_named_and_no_name_becomes_markup() {
    let html = page("<i>&", &[], &all_kinds());
    assert!(html.contains("<title>&lt;i&gt;&amp;</title>"));
    for name in ["mglru&lt;1&gt;&amp;", "published v7, lru", "&lt;/script&gt;&quot;mmap'", "opt"] {
        assert!(html.contains(name), "{name}");
    }
    for raw in ["mglru<1>", "</script>\"mmap", "a <b>", "'a<b>.o'", "a < b", "27 & more"] {
        assert!(!html.rsplit_once("<script").unwrap().0.contains(raw), "{raw}");
    }
    let data = html.rsplit_once("id=\"data\">").unwrap().1;
    assert!(!data.split_once("</script>").unwrap().0.contains('<'), "no text ends the data");
    assert!(html.contains("lowtide-lab sim high-thrash --bpf 'a&lt;b&gt;.o'"), "how to repeat it");
}

#[test]
fn the_data_are_in_the_page_and_can_be_read_back() {
    let documents = all_kinds();
    let html = page("A page", &[], &documents);
    let data = html.rsplit_once("id=\"data\">").unwrap().1;
    let data = data.split_once("</script>").unwrap().0;
    let back: Value = serde_json::from_str(data).unwrap();
    assert_eq!(back[0]["source"], "a <b>.json");
    assert_eq!(back[0]["result"], documents[0].value);
    assert_eq!(back[1]["result"]["rows"].as_array().unwrap().len(), 9);
}

#[test]
fn a_verdict_is_counted_and_said_in_words() {
    let html = page("A page", &[], &all_kinds());
    for tile in ["<b>1</b>✓ reproduced", "<b>1</b>✗ not reproduced", "<b>1</b>– not judged"] {
        assert!(html.contains(tile), "{tile}");
    }
    assert!(html.contains("1.15 to 1.5") && html.contains("at least 0.5"));
    assert!(html.contains("1.30"), "ours by published");
}

#[test]
fn what_is_no_result_is_refused_with_its_reason() {
    let refused = |text: &str| Document::parse("x", text).unwrap_err().to_string();
    for (text, why) in [
        ("", "empty"),
        (" \n", "empty"),
        ("{\"lowtide\": \"1\", \"rows\": [{", "ends in the middle (line 1)"),
        ("policy,ops\nlru,1\n", "not JSON"),
        ("{\"a\": 1}", "which version of lowtide"),
        ("{\"lowtide\": \"1\"}", "no `rows`"),
        ("{\"lowtide\": \"1\", \"rows\": 7}", "not a list of objects"),
        ("{\"lowtide\": \"1\", \"rows\": [7]}", "not a list of objects"),
        ("{\"lowtide\": \"1\", \"rows\": []}", "no rows"),
        ("[1]", "which version of lowtide"),
        ("{\"lowtide\": \"1\", \"rows\": [{}], \"verdict\": 7}", "`verdict`"),
        ("{\"lowtide\": \"1\", \"rows\": [{}]} {}", "several values"),
    ] {
        let error = refused(text);
        assert!(error.contains(why), "{text}: {error}");
    }
    let cut = Document::parse("x", "{\"lowtide\": \"1\",\n\"rows\": [").unwrap_err();
    assert!(matches!(cut, DocumentError::Truncated { line: 2 }), "{cut}");
}

#[test]
fn strange_rows_are_still_a_page() {
    let value = json!({"lowtide": "9.9", "machine": 7, "rows": [
        {}, {"ops_per_s": "fast"}, {"ops_per_s": null, "latency_us": {"p50": -1.0}},
        {"ops_per_s": 1e300, "samples": [1, {"read_kib": 1e308}, {}]}, {"ops_per_s": 0.0},
    ]});
    for svg in pictures(&page("", &[], &[document(&value)])) {
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        Xml::parse(svg).unwrap();
    }
}

#[test]
fn lines_of_a_program_that_ran_are_a_row_each() {
    let line = |pid: u32, peak: u64| {
        json!({"lowtide": "0.1.0", "pid": pid, "program": "sort", "max_bytes": 1 << 20,
            "budgets": [{"peak_bytes": peak, "max_bytes": 1 << 20}]})
        .to_string()
    };
    let text = format!("{}\n{}\n", line(7, 4096), line(8, 8192));
    let document = Document::parse("run.json", &text).unwrap();
    let html = page("", &[], std::slice::from_ref(&document));
    for text in ["sort (7)", "sort (8)", "Memory of files, at most", "8K"] {
        assert!(html.contains(text), "{text}");
    }
    let one = Document::parse("run.json", &line(9, 4096)).unwrap();
    assert!(page("", &[], &[one]).contains("sort (9)"));
}
