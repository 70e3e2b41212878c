"""Why events are posted: a closed set, since people's alerts are written against it."""

import enum


class Reason(enum.Enum):
    """Why an event is posted; the value is whether it is a warning."""

    Updated = ("Updated", False)
    Adopted = ("Adopted", False)
    DriftRepaired = ("DriftRepaired", False)
    CredentialsChanged = ("CredentialsChanged", False)
    Deleted = ("Deleted", False)
    Deleting = ("Deleting", False)
    Paused = ("Paused", False)
    Created = ("Created", False)
    Scaling = ("Scaling", False)
    Rolling = ("Rolling", False)
    Held = ("Held", False)
    AuditPassed = ("AuditPassed", False)
    AuditViolated = ("AuditViolated", True)
    AuditFailed = ("AuditFailed", True)
    AuditStale = ("AuditStale", True)
    SnapshotTaken = ("SnapshotTaken", False)
    SnapshotFailed = ("SnapshotFailed", True)
    DeletionBlocked = ("DeletionBlocked", True)
    Draining = ("Draining", False)
    DrainBlocked = ("DrainBlocked", True)
    CertificateInvalid = ("CertificateInvalid", True)
    NotServing = ("NotServing", True)
    BrokerGivenUp = ("BrokerGivenUp", True)
    Refused = ("Refused", True)
    NameClaimed = ("NameClaimed", True)
    ManagedByOther = ("ManagedByOther", True)
    EndpointNotAllowed = ("EndpointNotAllowed", True)
    Exists = ("Exists", True)
    NotAllowed = ("NotAllowed", True)
    Invalid = ("Invalid", True)
    ReferenceMissing = ("ReferenceMissing", True)
    EtcdUnavailable = ("EtcdUnavailable", True)
    EtcdReplaced = ("EtcdReplaced", True)
    Failed = ("Failed", True)

    @property
    def is_warning(self) -> bool:
        """Whether somebody should look."""
        return self.value[1]
