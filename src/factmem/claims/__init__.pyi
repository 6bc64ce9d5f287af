from .catalogue import all_claims as all_claims
from .catalogue import claim_named as claim_named
from .checking import Checked as Checked
from .checking import check_claims as check_claims
from .claim import Check as Check
from .claim import Claim as Claim
from .claim import Finding as Finding
from .claim import Verdict as Verdict
