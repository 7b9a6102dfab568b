//! `dpsgd ui` over its own socket, and in a real browser.

mod folder;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use folder::Folder;
use serde_json::Value;

/// A server that ends with the test.
struct Ui {
    child: Child,
    port: u16,
    token: String,
}

impl Drop for Ui {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ui {
    fn start(folder: &Folder) -> Self {
        let mut child = folder
            .command(&["ui", "--runs", ".", "--federation", "fed"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("an address");
        let (address, token) = line.trim().split_once("/?token=").expect("an address with a token");
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        Self { child, port, token: token.to_string() }
    }

    /// Status line and headers, and the body.
    fn ask(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_string(), body.to_string())
    }

    /// As the page asks.
    fn get(&self, path: &str) -> (String, String) {
        let (port, token) = (self.port, &self.token);
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: a=b; dpsgd-{port}={token}\r\n\
             Connection: close\r\n\r\n"
        ))
    }

    fn json(&self, path: &str) -> Value {
        let (head, body) = self.get(path);
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}\n{body}");
        serde_json::from_str(&body).expect("JSON")
    }
}

/// Another site that points its name to this machine, a page that does not know the token, and anything that is
/// not a question get nothing.
#[test]
fn only_this_page_is_answered() {
    let folder = Folder::new("ui-guarded");
    let ui = Ui::start(&folder);
    let (port, token) = (ui.port, ui.token.clone());
    let cookie = format!("Cookie: dpsgd-{port}={token}");
    let ours = format!("Host: 127.0.0.1:{port}");
    let line = |parts: &[&str]| format!("{}\r\nConnection: close\r\n\r\n", parts.join("\r\n"));
    let wrong = "0".repeat(token.len());
    for (code, request) in [
        ("421", line(&["GET /api/runs HTTP/1.1", "Host: evil.example", &cookie])),
        ("421", line(&["GET /api/runs HTTP/1.1", "Host: 127.0.0.1", &cookie])),
        ("421", line(&[&format!("GET /?token={token} HTTP/1.1"), "Host: evil.example:80"])),
        ("403", line(&["GET /api/runs HTTP/1.1", &ours])),
        ("403", line(&["GET / HTTP/1.1", &ours])),
        ("403", line(&["GET /api/runs HTTP/1.1", &ours, &format!("Cookie: dpsgd-{port}={wrong}")])),
        ("403", line(&[&format!("GET /?token={} HTTP/1.1", &token[1..]), &ours])),
        ("405", line(&["POST /api/runs HTTP/1.1", &ours, &cookie, "Content-Length: 0"])),
        ("404", line(&["GET /nothing HTTP/1.1", &ours, &cookie])),
        ("404", line(&["GET /report/..%2f..%2fetc HTTP/1.1", &ours, &cookie])),
        ("404", line(&["GET /api/run/..%2F.. HTTP/1.1", &ours, &cookie])),
    ] {
        let (head, body) = ui.ask(&request);
        assert!(head.starts_with(&format!("HTTP/1.1 {code}")), "{request}{head}");
        assert!(!body.contains(&token) && !body.contains("ledger"), "{body}");
        assert!(head.contains("default-src 'self'") && head.contains("frame-ancestors 'none'"), "{head}");
    }
    let (head, _) = ui.ask(&line(&[&format!("GET /?token={token} HTTP/1.1"), &ours]));
    assert!(head.starts_with("HTTP/1.1 303") && head.contains("HttpOnly; SameSite=Strict"), "{head}");
    // Only the loopback interface listens: 0.0.0.0 would answer on every address of the machine.
    let elsewhere = TcpStream::connect(("127.0.0.2", port));
    assert!(elsewhere.is_err() || !cfg!(target_os = "linux"), "it listens on more than 127.0.0.1");
}

/// The page's numbers are those of `dpsgd account`, and its runs are those of the folder.
#[test]
fn the_page_says_what_the_commands_say() {
    let folder = Folder::new("ui-says");
    folder.table();
    folder.text(&["train", "--config", "people.toml", "--sigma", "2", "--quiet", "--out", "one"]);
    let ui = Ui::start(&folder);
    let run = "samples%3D60000%26groups%3D64%26epochs%3D100%26sigma%3D2";
    let found = ui.json(&format!("/api/explore?run={run}&run=sigma%3Dx"));
    assert_eq!(found["runs"][0]["guarantees"][0]["epsilon"], "0.7447");
    assert!(found["runs"][1]["error"].is_string());
    let command = found["runs"][0]["command"].as_str().expect("a command");
    let again: Vec<&str> = command.split(' ').skip(1).chain(["--json"]).collect();
    assert!(folder.text(&again).contains("0.7446"), "{command}");
    let drawn = ui.json(&format!("/api/curves?run={run}&run={run}%26differing%3D2"));
    assert_eq!(drawn["svgs"].as_array().map(Vec::len), Some(2));
    let runs = ui.json("/api/runs");
    assert_eq!((&runs["runs"][0]["name"], &runs["runs"][0]["finished"]), (&"one".into(), &true.into()));
    assert_eq!(ui.json("/api/verify/one")["agrees"], true);
    assert!(ui.json("/api/run/one")["figures"].as_array().is_some_and(|figures| figures.len() >= 4));
    assert!(ui.get("/report/one").1.contains("<h1>"));
    let report = folder.read("one/report.html");
    folder.write("one/report.html", &report.replacen("ε ≤ ", "ε ≤ 0.", 1));
    assert_eq!(ui.json("/api/verify/one")["agrees"], false);
}

/// What a coordinator and a client leave on the disk while they run, from a simulated minute of a federation.
fn federation(folder: &Folder) {
    use dpsgd_federated::attendance::Attendance;
    use dpsgd_federated::chronicle::{Chronicle, FOLDER};
    use dpsgd_federated::status::{Found, Member, Status, clock, now};
    use dpsgd_federated::{Bounds, Rule, ServerOuter, Staleness, Terms};
    let terms = Terms {
        name: "of <three> hospitals".into(),
        dimension: 650,
        clients: 3,
        rounds: 400,
        max_staleness: 64,
        step: dpsgd::train::Schedule::constant(0.5),
        bounds: Bounds::of(1.0, 0.2),
        rule: Rule::EachUpdate,
        weight: Staleness::Constant,
        outer: ServerOuter::Plain,
    };
    let terms = terms.check().expect("terms");
    let mut chronicle = Chronicle::open(&folder.path("fed").join(FOLDER), &terms).expect("a folder");
    let mut last = Status::default();
    for second in 0..=20 {
        let applied = 30 * second;
        let share = |part: u64| applied * part / 10;
        let member = |(id, part): (u64, u64)| Member {
            id,
            round: share(part),
            applied: share(part),
            rejected: if id == 3 { [("stale".to_string(), second)].into() } else { Default::default() },
            heard: Some(now()),
        };
        let mut status = Status {
            run: terms.run().to_string(),
            name: terms.name.clone(),
            broker: "tls://localhost:4222".into(),
            connected: true,
            at: clock() + second as f64,
            clients: 3,
            version: applied,
            sequence: applied,
            updates_applied: applied,
            updates_rejected: [("stale".to_string(), second)].into(),
            rate: 30.0,
            measured: Some(Found {
                version: applied,
                loss: 0.7 / (1.0 + second as f64),
                accuracy: Some(0.9 - 0.4 / (1.0 + second as f64)),
            }),
            members: [(1, 5), (2, 3), (3, 2)].map(member).to_vec(),
            ..Status::default()
        };
        status.staleness.shares = (0..=4).map(|k| (k, (k + 1) as f64 / 5.0)).collect();
        (status.staleness.mean, status.staleness.p99) = (Some(2.0), Some(4));
        chronicle.note(&status, true).expect("room on the disk");
        last = status;
    }
    // The status is replaced once a second; this is the one that the page shows.
    let text = serde_json::to_vec(&Status { at: clock(), ..last }).expect("JSON");
    fs::write(folder.path("fed").join(FOLDER).join("status.json"), text).expect("room on the disk");
    let client = Attendance {
        run: terms.run().to_string(),
        client: 2,
        at: now(),
        connected: true,
        heard: Some(now()),
        version: 598,
        round: 180,
        rounds: 400,
        sent: 180,
        epsilon: Some("1.234".into()),
        ..Attendance::default()
    };
    fs::create_dir_all(folder.path("site-2")).expect("a folder");
    client.write(&folder.path("site-2")).expect("room on the disk");
}

/// A federation is shown if there is one, and as it stands on the disk.
#[test]
fn a_federation_is_shown_if_there_is_one() {
    let folder = Folder::new("ui-federation");
    let ui = Ui::start(&folder);
    assert_eq!(ui.json("/api/federation")["present"], false);
    assert!(ui.get("/federation-report").0.starts_with("HTTP/1.1 404"));
    federation(&folder);
    let found = ui.json("/api/federation");
    let coordinator = &found["coordinator"];
    assert_eq!((&found["present"], &coordinator["state"]), (&true.into(), &"running".into()));
    assert_eq!(coordinator["status"]["version"], 600);
    assert_eq!(coordinator["figures"].as_array().map(Vec::len), Some(5));
    assert_eq!(coordinator["report"], false);
    let client = &found["clients"][0];
    assert_eq!((&client["name"], &client["attendance"]["epsilon"]), (&"site-2".into(), &"1.234".into()));
    assert_eq!((&client["state"], &client["line"]), (&"running".into(), &"model 598 · 180 sent".into()));
    // A half-written file is not a federation, and not a reason to fail.
    fs::write(folder.path("fed/coordinator/status.json"), "{\"run\": ").expect("room on the disk");
    assert!(ui.json("/api/federation")["coordinator"].is_null());
}

/// Chromium shows the page; `.ci/run` installs it and runs this. With `DPSGD_SCREENSHOTS` set to a directory,
/// it also takes pictures.
#[test]
#[ignore = "needs chromium"]
fn a_browser_shows_it() {
    let folder = Folder::new("ui-browser");
    folder.table();
    for (name, sigma) in [("weak", "0.5"), ("strong", "4")] {
        folder.text(&["train", "--config", "people.toml", "--sigma", sigma, "--quiet", "--out", name]);
    }
    federation(&folder);
    let ui = Ui::start(&folder);
    let start = format!("http://127.0.0.1:{}/?token={}", ui.port, ui.token);
    let chromium = |more: &[&str]| {
        let common = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
        ];
        let profile = format!("--user-data-dir={}", folder.path("profile").display());
        let output = Command::new("chromium")
            .args(common)
            .arg("--timeout=20000")
            .arg(profile)
            .arg("--virtual-time-budget=6000")
            .args(more)
            .output()
            .expect("chromium runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let one =
        "sampling%3Dsubsample%26samples%3D60000%26groups%3D64%26epochs%3D100%26sigma%3D2%26delta%3D1e-5";
    let two = one.replace("sigma%3D2", "sigma%3D1");
    let explore = format!("{start}#explore?run={two}&run={one}");
    let page = chromium(&["--dump-dom", &explore]);
    for part in
        ["ε ≤ 0.74", "setting 2, the sliders", "--sigma 2", "aria-valuetext", "<svg", "who sees the updates"]
    {
        assert!(page.contains(part), "{part} is missing in\n{page}");
    }
    let runs = chromium(&["--dump-dom", &format!("{start}#runs?run=weak")]);
    for part in ["strong", "finished", "Test accuracy", "Open the report"] {
        assert!(runs.contains(part), "{part} is missing in\n{runs}");
    }
    let shown = chromium(&["--dump-dom", &format!("{start}#federation")]);
    for part in [
        "of &lt;three&gt; hospitals",
        "steps of the global model",
        "Share of each client",
        "20 stale",
        "Clients on this machine",
        "≤ 1.234",
    ] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    if let Ok(directory) = std::env::var("DPSGD_SCREENSHOTS") {
        fs::create_dir_all(&directory).expect("a directory");
        let wide = "--window-size=1280,1180";
        for (name, address, more) in [
            ("ui-explore.png", &explore, wide),
            ("ui-explore-dark.png", &explore, "--blink-settings=preferredColorScheme=0"),
            ("ui-runs.png", &format!("{start}#runs?run=weak"), wide),
            ("ui-federation.png", &format!("{start}#federation"), "--window-size=1280,1500"),
            ("ui-narrow.png", &explore, "--window-size=500,1500"),
        ] {
            chromium(&[&format!("--screenshot={directory}/{name}"), wide, more, address]);
        }
    }
}
