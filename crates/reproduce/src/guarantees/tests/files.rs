//! What is written: it can be read back, and needs nothing else.

use serde_json::Value;

use super::{DELTA, Section, near, oracle, quick};

/// The records of a CSV file, by the letter of RFC 4180.
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut inside = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if inside && letters.peek() == Some(&'"') => field.extend(letters.next()),
            '"' => inside = !inside,
            ',' if !inside => record.push(std::mem::take(&mut field)),
            '\n' if !inside => {
                record.push(std::mem::take(&mut field));
                all.push(std::mem::take(&mut record));
            }
            other => field.push(other),
        }
    }
    assert!(!inside && record.is_empty() && field.is_empty(), "the last line is whole");
    all
}

/// Header and lines of a file of a section.
fn file(section: &Section, name: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let (_, text) = section.csv.iter().find(|(file, _)| file == name).unwrap();
    let mut all = records(text);
    let header = all.remove(0);
    assert!(all.iter().all(|record| record.len() == header.len()), "{name}");
    (header, all)
}

#[test]
fn the_tables_read_back_as_the_json() {
    for (section, name, least) in [(&quick()[0], "table1.csv", 40), (&quick()[1], "table2.csv", 18)] {
        let (header, lines) = file(section, name);
        let objects = section.json["rows"].as_array().unwrap();
        assert!(lines.len() >= least && lines.len() == objects.len(), "{}", lines.len());
        for (line, object) in lines.iter().zip(objects) {
            assert_eq!(object.as_object().unwrap().len(), header.len());
            for (name, field) in header.iter().zip(line) {
                match &object[name] {
                    Value::Number(number) => {
                        assert_eq!(field.parse::<f64>().unwrap(), number.as_f64().unwrap(), "{name}")
                    }
                    Value::String(text) => assert_eq!(field, text, "{name}"),
                    Value::Bool(truth) => assert_eq!(*field, truth.to_string(), "{name}"),
                    Value::Null => assert!(field.is_empty() || field == "inf", "{name}: {field}"),
                    other => panic!("{name}: {other}"),
                }
            }
        }
    }
}

/// (x, y) of one series of a figure.
fn series(section: &Section, name: &str, label: &str) -> Vec<(f64, f64)> {
    let (header, lines) = file(section, name);
    assert_eq!((header.len(), header[0].as_str()), (3, "series"));
    let own = lines.iter().filter(|line| line[0] == label);
    let points: Vec<_> = own.map(|line| (line[1].parse().unwrap(), line[2].parse().unwrap())).collect();
    assert!(points.len() >= 2, "{name}: {label}");
    points
}

#[test]
fn the_figures_show_what_the_oracle_finds() {
    let [first, second] = quick();
    let name = "figure-epsilon-over-epochs-a1.csv";
    let exact = series(first, name, "exact A₁, subsampling");
    for &(e, epsilon) in &exact {
        let reference = oracle::binomial(937 * e as u64, 64.0 / 60_000.0, 8.0, DELTA);
        near(epsilon, reference, 1e-8, "subsampling over E");
    }
    for (e, epsilon) in series(first, name, "printed row 3, µ = √E/σ") {
        near(epsilon, oracle::gaussian(e.sqrt() / 8.0, DELTA), 1e-8, "G_µ over E");
    }
    // "Says nothing before E = 12", and "too low by 18 % at E = 1".
    for (e, epsilon) in series(first, name, "printed row 2 with its tail") {
        assert_eq!(epsilon.is_infinite(), e < 12.0, "{e}");
    }
    near(
        series(first, name, "printed row 2, shorthand")[0].1 / exact[0].1,
        0.82,
        0.005,
        "the shorthand at E = 1",
    );
    for (e, epsilon) in series(first, "figure-filtering.csv", "filtered, exact") {
        near(epsilon, oracle::binomial(e as u64, 0.5, 2.0, DELTA), 1e-8, "filtered over E");
    }
    // A curve, from the points of the two ends of the printed range.
    for (alpha, beta) in series(first, "figure-tradeoff-shuffling.csv", "exact, A₁") {
        assert!((0.0..=1.0 - alpha).contains(&beta), "{alpha} {beta}");
    }
    // The promise is broken at the smallest δ, and kept at the largest.
    let broken = series(first, "figure-refuted-over-delta.csv", "g = 1, σ = 2");
    assert!(broken.first().unwrap().1 < 1.0 && broken.last().unwrap().1 > 1.0, "{broken:?}");
    // "Within 7 %".
    let name = "figure-epsilon-over-group-a1.csv";
    let batch = series(first, name, "exact A₁, BC, SH");
    for (own, other) in series(first, name, "exact A₁, IC, SS").iter().zip(&batch) {
        assert!(own.1 > other.1 && own.1 < 1.07 * other.1, "{own:?} {other:?}");
    }
    // "1.9 to 2.8 times", and "good to one percent".
    let name = "figure-epsilon-over-epochs-both.csv";
    let known = series(second, name, "exact A₁");
    for (printed, exact) in series(second, name, "printed row 3, A₁").iter().zip(&known) {
        assert!((1.9..2.8).contains(&(printed.1 / exact.1)), "{printed:?} {exact:?}");
    }
    let blind = series(second, name, "exact A₀ (printed row 1)");
    for (limit, exact) in series(second, name, "limit, µ = c·h(σ), A₀").iter().zip(&blind) {
        near(limit.1, exact.1, 0.01, "the limit");
    }
}

/// At α = 1e-4 after two epochs the exact curve is below the printed guarantee.
#[test]
fn the_printed_range_does_not_hold_the_curve_at_its_ends() {
    let case = super::subsampled((60_000, 64, 1), 1, 2, 2.0);
    let curve =
        dpsgd_privacy::adversary::curve(&case.mechanism().unwrap(), dpsgd_privacy::Adversary::A1).unwrap();
    let printed = |alpha: f64| dpsgd_privacy::gaussian::tradeoff(0.75_f64.sqrt(), alpha);
    assert!(curve.beta(1e-4).unwrap().upper < printed(1e-4));
    assert!(curve.beta(0.1).unwrap().lower > printed(0.1));
}

/// Nothing is fetched from anywhere, every row and figure is there, and every tag is closed.
fn check(section: &Section, rows: usize, figures: usize) {
    let html = &section.html;
    for part in ["http", "<script", "src=", "href=", "url(", "@import", "NaN", "not certified"] {
        assert!(!html.contains(part), "{part}");
    }
    assert_eq!(html.matches("<figure").count(), figures);
    assert_eq!(html.matches("<svg").count(), 2 * figures);
    assert_eq!(html.matches("As printed: ").count(), rows);
    // The summary, and two tables a row.
    assert_eq!(html.matches("<table").count(), 1 + 2 * rows);
    assert_eq!(section.csv.len(), 1 + figures);
    assert_eq!(section.json["figures"].as_array().unwrap().len(), figures);
    for tag in ["table", "tr", "td", "div", "figure", "figcaption", "p", "h3"] {
        let opened = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn the_page_needs_nothing_else() {
    check(&quick()[0], 7, 6);
    check(&quick()[1], 4, 3);
}

/// `DPSGD_SHOW` names a folder to which it is written, to be looked at.
#[test]
#[ignore = "takes a minute"]
fn the_full_version_is_whole() {
    let start = std::time::Instant::now();
    let sections = [super::table1(false).unwrap(), super::table2(false).unwrap()];
    println!("{:.1} s", start.elapsed().as_secs_f64());
    check(&sections[0], 7, 6);
    check(&sections[1], 4, 3);
    let (_, lines) = file(&sections[0], "table1.csv");
    assert!(lines.len() > 2 * quick()[0].json["rows"].as_array().unwrap().len());
    let Ok(folder) = std::env::var("DPSGD_SHOW") else { return };
    let folder = std::path::Path::new(&folder);
    let body: String =
        sections.iter().map(|part| dpsgd_report::html::section(&part.title, &part.html)).collect();
    std::fs::write(folder.join("guarantees.html"), dpsgd_report::html::page("Guarantees", &body, ""))
        .unwrap();
    for (name, text) in sections.iter().flat_map(|part| &part.csv) {
        std::fs::write(folder.join(name), text).unwrap();
    }
}
