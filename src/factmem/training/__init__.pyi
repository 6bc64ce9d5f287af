from .memories import LINEAR_PROTOCOL as LINEAR_PROTOCOL
from .memories import MLP_PROTOCOL as MLP_PROTOCOL
from .memories import MemoryProtocol as MemoryProtocol
from .memories import TrainedMemory as TrainedMemory
from .memories import TrainingOutcome as TrainingOutcome
from .memories import linear_start as linear_start
from .memories import mlp_start as mlp_start
from .memories import train_memories as train_memories
