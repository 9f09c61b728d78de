//! The requests of clients and their answers, recorded for the simulator's oracle.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use smb_client::ClientError;
use smb_sim::oracle::{Answer, History, Object, OpId, Request};
use smb_wire::Status;

/// The history of a case, shared by its clients.
#[derive(Clone)]
pub(crate) struct Recorder {
    history: Arc<Mutex<History>>,
    start: Instant,
}

/// Statuses that say that nothing was done. All others may leave a part.
const REFUSALS: [Status; 12] = [
    Status::OBJECT_NAME_NOT_FOUND,
    Status::OBJECT_PATH_NOT_FOUND,
    Status::OBJECT_NAME_COLLISION,
    Status::OBJECT_NAME_INVALID,
    Status::SHARING_VIOLATION,
    Status::ACCESS_DENIED,
    Status::DELETE_PENDING,
    Status::FILE_CLOSED,
    Status::INVALID_PARAMETER,
    Status::DIRECTORY_NOT_EMPTY,
    Status::FILE_IS_A_DIRECTORY,
    Status::END_OF_FILE,
];

/// How a request ended for its client.
#[derive(Debug)]
pub(crate) enum Ended<T> {
    /// With success.
    Well(T),
    /// With an error; whether something may have been done.
    Badly(bool),
    /// Without an answer: the connection is gone.
    Never,
}

impl<T> Ended<T> {
    /// Its result; `Err` when the client should end.
    pub(crate) fn value(self) -> Result<Option<T>, Gone> {
        match self {
            Self::Well(value) => Ok(Some(value)),
            Self::Badly(_) => Ok(None),
            Self::Never => Err(Gone),
        }
    }
}

/// The server is gone.
#[derive(Debug)]
pub(crate) struct Gone;

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            history: Arc::default(),
            start: Instant::now(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of the history.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// A number for an object.
    pub(crate) fn object(&self) -> Object {
        self.lock().object()
    }

    /// Does a request, and writes down when it was issued and what was answered.
    pub(crate) fn ask<T>(
        &self,
        request: Request,
        call: impl FnOnce() -> Result<T, ClientError>,
    ) -> Ended<T> {
        let op = self.lock().issue(self.now(), request);
        let result = call();
        self.end(op, result)
    }

    fn end<T>(&self, op: OpId, result: Result<T, ClientError>) -> Ended<T> {
        let (answer, ended) = match result {
            Ok(value) => (Answer::Success, Ended::Well(value)),
            Err(ClientError::Status(status)) if REFUSALS.contains(&status) => {
                (Answer::Refused, Ended::Badly(false))
            }
            Err(ClientError::Status(_)) => (Answer::Failed, Ended::Badly(true)),
            Err(_) => return Ended::Never,
        };
        let now = self.now();
        self.lock().answer(op, now, answer);
        ended
    }

    /// A question that changes nothing.
    pub(crate) fn quietly<T>(&self, result: Result<T, ClientError>) -> Ended<T> {
        match result {
            Ok(value) => Ended::Well(value),
            Err(ClientError::Status(_)) => Ended::Badly(false),
            Err(_) => Ended::Never,
        }
    }
}
