//! Reads bytes as each of these types, and writes again what could be read.

macro_rules! try_all {
    ($bytes:expr; $($type:ty),* $(,)?) => {
        let mut out = bytes::BytesMut::new();
        $( if let Ok(value) = <$type>::read($bytes) { value.encode(&mut out); } )*
    };
}
