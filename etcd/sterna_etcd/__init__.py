"""etcd, as Sterna uses it: a client, every key, every value.

`client`, `watch`, `leases`, `endpoints`, `credentials`, `errors` and `values` are a small client of etcd's v3 interface
over grpc.aio that knows nothing of Sterna; `layout` (keys), `records` (values) and `identity` (is this our store?) are
what brokers and operator share. Nothing here knows a broker or Kubernetes.
"""

from sterna_etcd.client import Etcd
from sterna_etcd.errors import (
    AccessError,
    CompactedError,
    EtcdError,
    InvalidRequestError,
    LeaseNotFoundError,
    NoSpaceError,
    NotDoneError,
    UnavailableError,
    UnknownOutcomeError,
)
from sterna_etcd.identity import Remembered, StoreIdentity, StoreReplacedError, UnclaimedError
from sterna_etcd.layout import Claim, HomeKey, KeyLayoutError, Layout, ObjectStatusKey
from sterna_etcd.leases import Lease
from sterna_etcd.settings import EtcdSettings, SettingsError
from sterna_etcd.values import (
    Condition,
    Delete,
    Get,
    Got,
    KeyValue,
    Listed,
    Put,
    Transacted,
    absent,
    create_revision,
    equals,
    mod_revision,
    unchanged_since,
)
from sterna_etcd.watch import Batch, Event, RevisionWentBackError, Watch

__all__ = [
    "AccessError",
    "Batch",
    "Claim",
    "CompactedError",
    "Condition",
    "Delete",
    "Etcd",
    "EtcdError",
    "EtcdSettings",
    "Event",
    "Get",
    "Got",
    "HomeKey",
    "InvalidRequestError",
    "KeyLayoutError",
    "KeyValue",
    "Layout",
    "Lease",
    "LeaseNotFoundError",
    "Listed",
    "NoSpaceError",
    "NotDoneError",
    "ObjectStatusKey",
    "Put",
    "Remembered",
    "RevisionWentBackError",
    "SettingsError",
    "StoreIdentity",
    "StoreReplacedError",
    "Transacted",
    "UnavailableError",
    "UnclaimedError",
    "UnknownOutcomeError",
    "Watch",
    "absent",
    "create_revision",
    "equals",
    "mod_revision",
    "unchanged_since",
]
