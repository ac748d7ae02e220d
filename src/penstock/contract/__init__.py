"""The AsyncAPI document as the desired state of the clusters."""
