//! `dpsgd ui`: a page in the browser, served to this machine only.
//!
//! # Guarantee
//! The server listens on the loopback interface. A request is answered only if it names that interface as its
//! host, which a page of another site that points its name here does not, and if it carries the token of this
//! start, which no other page knows: it came with the address that the terminal shows and is kept in a cookie
//! that browsers send from this page only. Every request reads; none changes a file.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use clap::Args;
use dpsgd::browse::{decoded, explore, parameters, runs};
use dpsgd_federated::browse;
use serde_json::Value;
use tiny_http::{Header, Method, Request, Response, Server};

use crate::failure::Failure;
use crate::print;

/// The flags of `dpsgd ui`.
#[derive(Args)]
#[command(after_help = "\
Explore: what a run would leak, redrawn from the certified accountant as you move the sliders; several settings \
overlaid; the command to copy.
Runs: the runs of a folder with their curves while they train, compared, verified, with their reports.
Federation: a coordinator on this machine, and the clients among the runs; shown if there are any.

The page is for this machine only and works offline. Ctrl-C ends it.")]
pub struct UiCommand {
    /// The folder of runs
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// The folder of a federation, as dpsgd federation init wrote it
    #[arg(long, value_name = "DIR", default_value = "fed")]
    federation: PathBuf,
    /// The port; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

/// Requests answered at a time: a slow account must not hold up the curves of a run.
const THREADS: usize = 4;

/// What every thread needs to know.
struct Site {
    runs: PathBuf,
    federation: PathBuf,
    port: u16,
    token: String,
}

/// An answer: its type and its bytes, or why there is none.
type Answer = Result<(&'static str, Vec<u8>), (u16, String)>;

impl UiCommand {
    /// Serves the page until the process ends.
    pub fn run(self) -> Result<(), Failure> {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port);
        let server = Server::http(address).map_err(|error| Failure::Other(format!("{address}: {error}")))?;
        let port = server.server_addr().to_ip().map_or(self.port, |address| address.port());
        let runs = std::path::absolute(&self.runs).unwrap_or(self.runs);
        let federation = std::path::absolute(&self.federation).unwrap_or(self.federation);
        let site = Arc::new(Site { runs, federation, port, token: token()? });
        print(&format!(
            "http://127.0.0.1:{port}/?token={}\n\nOpen it in a browser on this machine. Ctrl-C ends it.\n",
            site.token
        ))?;
        let server = Arc::new(server);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (server, site) = (Arc::clone(&server), Arc::clone(&site));
                thread::spawn(move || server.incoming_requests().for_each(|request| site.serve(request)))
            })
            .collect();
        for thread in threads {
            // A thread ends only with the server.
            let _ = thread.join();
        }
        Ok(())
    }
}

/// 128 bits nobody can guess.
fn token() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Failure::Other(format!("no randomness: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Site {
    fn serve(&self, mut request: Request) {
        // A body is never asked for; a small one is read so that the connection can be used again.
        let mut body = Vec::new();
        let _ = request.as_reader().take(1 << 16).read_to_end(&mut body);
        let response = match self.checked(&request) {
            Err((code, why)) => text(code, &why),
            Ok(Asked::Enter) => self.enter(),
            Ok(Asked::Page) => match self.answer(request.url()) {
                Ok((kind, bytes)) => with_type(Response::from_data(bytes), kind),
                Err((code, why)) => text(code, &why),
            },
        };
        // Whoever asked may have gone.
        let _ = request.respond(secured(response));
    }

    /// Whether the request may be answered.
    fn checked(&self, request: &Request) -> Result<Asked, (u16, String)> {
        let header = |name: &'static str| {
            request
                .headers()
                .iter()
                .find(|header| header.field.equiv(name))
                .map(|header| header.value.as_str())
        };
        let hosts = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        if !header("Host").is_some_and(|host| hosts.iter().any(|ours| ours == host)) {
            return Err((421, "This page answers to 127.0.0.1 and localhost only.".into()));
        }
        if *request.method() != Method::Get {
            return Err((405, "Only GET: nothing here changes anything.".into()));
        }
        if parameters(request.url()).any(|(name, value)| name == "token" && same(&value, &self.token)) {
            return Ok(Asked::Enter);
        }
        let mut cookies = header("Cookie").unwrap_or_default().split(';');
        let ours = format!("{}={}", self.cookie(), self.token);
        if cookies.any(|cookie| same(cookie.trim(), &ours)) {
            return Ok(Asked::Page);
        }
        Err((403, "Open the address that dpsgd ui shows in the terminal: it holds the token.".into()))
    }

    /// Cookies are shared by all ports of a machine.
    fn cookie(&self) -> String {
        format!("dpsgd-{}", self.port)
    }

    /// Takes the token out of the address and into a cookie.
    fn enter(&self) -> Page {
        let cookie = format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie(), self.token);
        let mut page = text(303, "");
        for (name, value) in [("Set-Cookie", cookie.as_str()), ("Location", "/")] {
            page.add_header(header(name, value));
        }
        page
    }

    fn answer(&self, url: &str) -> Answer {
        let path = url.split('?').next().unwrap_or_default();
        let parts: Vec<String> = path.trim_matches('/').split('/').map(decoded).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let json = |value: Value| Ok(("application/json; charset=utf-8", value.to_string().into_bytes()));
        match parts[..] {
            [""] => Ok(("text/html; charset=utf-8", include_str!("ui/page.html").into())),
            ["page.css"] => {
                let style = format!("{}\n{}", dpsgd::report::html::STYLE, include_str!("ui/page.css"));
                Ok(("text/css; charset=utf-8", style.into_bytes()))
            }
            ["page.js"] => Ok(("text/javascript; charset=utf-8", include_str!("ui/page.js").into())),
            ["api", "explore"] => json(explore::numbers(parameters(url))),
            ["api", "epsilon"] => json(explore::epsilons(parameters(url))),
            ["api", "curves"] => json(explore::curves(parameters(url))),
            ["api", "runs"] => json(runs::list(&self.runs)),
            ["api", "compare"] => json(runs::compare(&self.runs, parameters(url)).map_err(not_found)?),
            ["api", "run", name] => json(runs::curves(&self.runs, name).map_err(not_found)?),
            ["api", "verify", name] => json(runs::verify(&self.runs, name).map_err(not_found)?),
            ["api", "federation"] => json(browse::federation(&self.federation, &self.runs)),
            ["federation-report"] => {
                let page = browse::report(&self.federation).map_err(not_found)?;
                Ok(("text/html; charset=utf-8", page))
            }
            ["report", name] => {
                let page = runs::report(&self.runs, name).map_err(not_found)?;
                Ok(("text/html; charset=utf-8", page))
            }
            _ => Err((404, "There is no such page.".into())),
        }
    }
}

enum Asked {
    /// With the token in the address: the start.
    Enter,
    /// Anything else, with the cookie.
    Page,
}

fn not_found(why: String) -> (u16, String) {
    (404, why)
}

type Page = Response<std::io::Cursor<Vec<u8>>>;

/// Names and values are constants or tokens of this program, which are valid headers.
fn header(name: &str, value: &str) -> Header {
    Header::from_bytes(name, value).unwrap_or_else(|()| unreachable!("{name}: {value} is a header"))
}

fn with_type(mut response: Page, kind: &str) -> Page {
    response.add_header(header("Content-Type", kind));
    response
}

fn text(code: u16, said: &str) -> Page {
    let response = Response::from_data(format!("{said}\n").into_bytes()).with_status_code(code);
    with_type(response, "text/plain; charset=utf-8")
}

/// Nothing is loaded from elsewhere, framed elsewhere, or kept.
fn secured(mut response: Page) -> Page {
    for (name, value) in [
        (
            "Content-Security-Policy",
            "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; \
             form-action 'none'",
        ),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
    ] {
        response.add_header(header(name, value));
    }
    response
}

/// Compares in a time that does not say how much is right.
fn same(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same("abc", "abc"));
        assert!(!same("abc", "abd") && !same("ab", "abc") && !same("", "a"));
    }
}
