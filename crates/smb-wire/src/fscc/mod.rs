//! `fscc`: payloads inside SMB2 messages; declarations only.
