//! The messages of the control socket: one JSON object in a line, in each direction.
//!
//! Request: `{"v":1,"cmd":"status"}`. Answer: `{"v":1,"ok":true,"result":...}` or
//! `{"v":1,"ok":false,"error":"..."}`. A newer version is refused; unknown commands and keys are
//! errors. Lines are bounded in both directions.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Error, args::Question};

pub const VERSION: u64 = 1;
/// Longest request line in bytes, without its end.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Longest answer that the client reads, in bytes.
pub const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Show the server's activity.
    Status {},
    /// Read the configuration and the user file again.
    Reload {},
    /// Close what clients have open.
    Close { what: Closing },
    /// Accept the loss of what failed syncs left unproven.
    ClearLatch {
        /// One share, or all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        share: Option<String>,
    },
    /// Which policy an open would have, and why.
    Explain { question: Question },
    /// Show the durability policies, or change one until the next restart or reload.
    Policy {
        /// One share, or all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        share: Option<String>,
        /// The new policy, spelled as on the command line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        set: Option<String>,
        /// Consent to lose acknowledged writes.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        accept_loss: bool,
        /// Set the rules of the share aside, too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        without_rules: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Closing {
    /// A session, by its id.
    Session(u64),
    /// An open, by its id.
    Open(u64),
    /// All sessions of a user, by the user's name.
    User(String),
    /// Everything that is open on a share, by the share's name.
    Share(String),
}

/// Reads a request line.
///
/// # Errors
/// The mistake.
pub fn parse_request(line: &[u8]) -> Result<Request, Error> {
    let value: Value = serde_json::from_slice(line).map_err(|error| format!("no JSON: {error}"))?;
    let Value::Object(mut object) = value else {
        return Err("not an object".into());
    };
    match object.remove("v").as_ref().map(Value::as_u64) {
        Some(Some(VERSION)) => {}
        Some(Some(other)) => return fail!("version {other} is not spoken here, only {VERSION}"),
        _ => return Err("the version `v` is missing".into()),
    }
    Ok(serde_json::from_value(Value::Object(object))?)
}

/// Writes a request line with its end.
#[must_use]
pub fn request_line(request: &Request) -> String {
    let mut object = json!(request);
    if let Some(fields) = object.as_object_mut() {
        fields.insert("v".into(), json!(VERSION));
    }
    format!("{object}\n")
}

/// Writes an answer line with its end.
#[must_use]
pub fn answer_line(answer: &Result<Value, Error>) -> String {
    let object = match answer {
        Ok(result) => json!({ "v": VERSION, "ok": true, "result": result }),
        Err(error) => json!({ "v": VERSION, "ok": false, "error": error.to_string() }),
    };
    format!("{object}\n")
}

/// Reads an answer line.
///
/// # Errors
/// The server's error, or that the line is no answer.
pub fn parse_answer(line: &[u8]) -> Result<Value, Error> {
    let mut value: Value =
        serde_json::from_slice(line).map_err(|error| format!("the answer is no JSON: {error}"))?;
    let version = value.get("v").cloned().unwrap_or_default();
    if version.as_u64() != Some(VERSION) {
        return fail!(
            "the server speaks version {version}, this program {VERSION}\n  = use the program that runs as the server, \
             or restart the server with this one"
        );
    }
    if value.get("ok").and_then(Value::as_bool) == Some(true) {
        return Ok(value.get_mut("result").map(Value::take).unwrap_or_default());
    }
    let reason = value.get("error").and_then(Value::as_str);
    let reason = reason.unwrap_or("refused without a reason");
    Err(reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_one_line_of_json() {
        let status = Request::Status {};
        assert_eq!(request_line(&status), "{\"cmd\":\"status\",\"v\":1}\n");
        let policy = Request::Policy {
            share: Some("a\nb".to_owned()),
            set: Some("honor".to_owned()),
            accept_loss: true,
            without_rules: true,
        };
        let show = Request::Policy {
            share: None,
            set: None,
            accept_loss: false,
            without_rules: false,
        };
        let clear = Request::ClearLatch { share: None };
        let question = Question {
            path: "a".to_owned(),
            host_path: "/b".into(),
            share: None,
            user: String::new(),
            client: "::1".parse().ok(),
            dialect: 0x311,
            write_through: true,
            unbuffered: false,
        };
        let explain = Request::Explain { question };
        let close = |what| Request::Close { what };
        let closings = [
            close(Closing::Session(u64::MAX)),
            close(Closing::Open(1)),
            close(Closing::User("a b".to_owned())),
            close(Closing::Share("\"".to_owned())),
        ];
        let others = [status, Request::Reload {}, policy, show, clear, explain];
        for request in others.into_iter().chain(closings) {
            let line = request_line(&request);
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(parse_request(line.as_bytes()).unwrap(), request);
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let refused = |line: &str| parse_request(line.as_bytes()).unwrap_err().to_string();
        assert!(refused("").starts_with("no JSON"));
        assert!(refused("{\"v\":1").starts_with("no JSON"));
        assert_eq!(refused("[1]"), "not an object");
        assert_eq!(
            refused("{\"cmd\":\"status\"}"),
            "the version `v` is missing"
        );
        assert_eq!(
            refused("{\"v\":\"1\",\"cmd\":\"status\"}"),
            "the version `v` is missing"
        );
        assert!(refused("{\"v\":2,\"cmd\":\"status\"}").contains("version 2 is not spoken"));
        assert!(refused("{\"v\":1,\"cmd\":\"halt\"}").contains("halt"));
        assert!(refused("{\"v\":1,\"cmd\":\"status\",\"x\":1}").contains('x'));
        assert!(refused("{\"v\":1}").contains("cmd"));
        assert!(
            refused(&format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)))
                .starts_with("no JSON")
        );
    }

    #[test]
    fn answers() {
        let line = answer_line(&Ok(json!({ "a": 1 })));
        assert_eq!(parse_answer(line.as_bytes()).unwrap(), json!({ "a": 1 }));
        let line = answer_line(&Err("no such share".into()));
        let refused = parse_answer(line.as_bytes()).unwrap_err();
        assert_eq!(refused.to_string(), "no such share");
        assert!(
            parse_answer(b"{\"v\":9,\"ok\":true}")
                .unwrap_err()
                .to_string()
                .contains("version 9")
        );
        assert!(parse_answer(b"hello").is_err());
    }
}
