//! Tokens and revocations.

use std::collections::BTreeMap;

use mycel_node::{
    clock, identity as keys,
    invite::Terms,
    membership::{self, Statement, Token, TokenError},
    revocation,
    rights::NEVER,
};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict, PyTuple},
};

use crate::{
    errors::{InvalidSetting, InvalidToken},
    keys::invalid_key,
};

fn refused(error: TokenError) -> PyErr {
    InvalidToken::new_err((error.to_string(), error.kind()))
}

fn bytes<'py>(py: Python<'py>, made: Result<Vec<u8>, TokenError>) -> PyResult<Bound<'py, PyBytes>> {
    made.map(|token| PyBytes::new(py, &token)).map_err(refused)
}

/// The terms of an invite as Python has them: serial, (key, place) of each gateway, and how many
/// may join at each place.
type TermsArguments = ([u8; 16], Vec<([u8; 32], u32)>, BTreeMap<u32, u32>);

/// What a block says, from a dict: user, roles, actions, priority_max, caps (in thousandths),
/// cluster, expires_at, peer, invite. What is absent or None is not said.
fn statement(given: &Bound<'_, PyDict>) -> PyResult<Statement> {
    let mut s = Statement::default();
    for (name, value) in given {
        let name: String = name.extract()?;
        match name.as_str() {
            "user" => s.user = value.extract()?,
            "roles" => s.roles = value.extract()?,
            "actions" => s.actions = value.extract()?,
            "priority_max" => s.priority_max = value.extract()?,
            "caps" => s.caps = value.extract::<BTreeMap<String, i64>>()?,
            "cluster" => s.cluster = value.extract()?,
            "expires_at" => s.expires_at = value.extract()?,
            "peer" => s.peer = value.extract()?,
            "invite" => {
                let terms: Option<TermsArguments> = value.extract()?;
                s.invite = terms.map(|(serial, gateways, joins)| Terms { serial, gateways, joins });
            }
            _ => return Err(InvalidSetting::new_err(format!("a token cannot say {name:?}"))),
        }
    }
    Ok(s)
}

#[pyfunction]
pub fn issue_token<'py>(
    py: Python<'py>,
    owner_secret: &[u8],
    swarm: &str,
    grant: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyBytes>> {
    bytes(py, membership::issue(owner_secret, swarm, &statement(grant)?))
}

#[pyfunction]
pub fn delegate_token<'py>(
    py: Python<'py>,
    owner_secret: &[u8],
    swarm: &str,
    key: &[u8],
    grant: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyBytes>> {
    bytes(py, membership::delegate(owner_secret, swarm, key, &statement(grant)?))
}

#[pyfunction]
pub fn issue_delegated_token<'py>(
    py: Python<'py>,
    secret: &[u8],
    owner_public: &[u8],
    delegation: &[u8],
    grant: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyBytes>> {
    let grant = statement(grant)?;
    bytes(py, membership::issue_delegated(secret, owner_public, delegation, &grant))
}

#[pyfunction]
pub fn narrow_token<'py>(
    py: Python<'py>,
    owner_public: &[u8],
    token: &[u8],
    limits: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyBytes>> {
    bytes(py, membership::narrow(owner_public, token, &statement(limits)?))
}

#[pyfunction]
pub fn bind_token<'py>(
    py: Python<'py>,
    owner_public: &[u8],
    token: &[u8],
    peer_id: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    bytes(py, membership::bind(owner_public, token, peer_id))
}

#[pyfunction]
pub fn inspect_token<'py>(
    py: Python<'py>,
    owner_public: &[u8],
    peer_id: &str,
    token: &[u8],
) -> PyResult<Bound<'py, PyTuple>> {
    let found = membership::inspect(owner_public, peer_id, clock::wall_seconds(), token);
    described(py, &found.map_err(refused)?)
}

/// The terms of an invite, or of a delegation that lets its key invite; None of any other token.
#[pyfunction]
pub fn invite_terms<'py>(
    py: Python<'py>,
    owner_public: &[u8],
    token: &[u8],
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let terms = membership::terms(owner_public, token).map_err(refused)?;
    terms
        .map(|terms| {
            let key = |(key, place): &([u8; 32], u32)| (PyBytes::new(py, key), *place);
            let gateways: Vec<_> = terms.gateways.iter().map(key).collect();
            (PyBytes::new(py, &terms.serial), gateways, terms.joins).into_pyobject(py)
        })
        .transpose()
}

/// A token's content as `mycel.access.tokens` takes it.
pub fn described<'py>(py: Python<'py>, token: &Token) -> PyResult<Bound<'py, PyTuple>> {
    let rights = &token.rights;
    let ids: Vec<_> = token.revocation_ids.iter().map(|id| PyBytes::new(py, id)).collect();
    let expires_at = (rights.expires_at != NEVER).then_some(rights.expires_at);
    let invite = token.invite.as_ref().map(|invite| {
        let admitted_by = invite.admitted_by.map(|key| PyBytes::new(py, &key));
        (PyBytes::new(py, &invite.serial()), invite.joins(), admitted_by)
    });
    (
        &rights.swarm,
        &rights.user,
        rights.roles,
        rights.actions.iter().collect::<Vec<_>>(),
        rights.priority_max,
        rights.caps.clone(),
        &rights.cluster,
        expires_at,
        ids,
        PyBytes::new(py, &token.signer),
        token.is_bound,
        invite,
    )
        .into_pyobject(py)
}

#[pyfunction]
pub fn sign_revocation<'py>(
    py: Python<'py>,
    owner_secret: &[u8],
    swarm: &str,
    id: [u8; 32],
    expires_at: Option<u64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let owner = keys::keypair(owner_secret).map_err(invalid_key)?;
    let record = revocation::sign(&owner, swarm, &id, expires_at.unwrap_or(NEVER))
        .ok_or_else(|| InvalidToken::new_err("the owner's key cannot sign"))?;
    Ok(PyBytes::new(py, &record))
}

/// The id and the token's end (None: never) of a record that the owner signed; None for any
/// other.
#[pyfunction]
pub fn read_revocation<'py>(
    py: Python<'py>,
    owner_public: &[u8],
    swarm: &str,
    record: &[u8],
) -> PyResult<Option<(Bound<'py, PyBytes>, Option<u64>)>> {
    let owner = keys::public_key(owner_public).map_err(invalid_key)?;
    let found = revocation::read(&owner, swarm, record);
    Ok(found.map(|(id, ends)| (PyBytes::new(py, &id), (ends != NEVER).then_some(ends))))
}
