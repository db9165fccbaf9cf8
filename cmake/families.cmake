# The families of kernels, one line each; the function's comment (targets.cmake) says which files belong to one.
unmetal_family(pooling
  HEADERS pooling_kind.hpp pooling_node.hpp
  SOURCES pooling_node.cpp pooling_problem.cpp
  CPU pooling_direct.cpp pooling_layout.cpp
  CUDA pooling_cuda.cu pooling_sliding_cuda.cu
  CONFORM pooling_reference_call.cpp
  TESTS pooling_decisions_test.cpp pooling_test.cpp)
unmetal_family(upsampling
  HEADERS crop_and_resize.hpp grid_sample.hpp image_scale.hpp resize.hpp scale_node.hpp upsampling_node.hpp
  SOURCES check/upsampling_reference.cpp crop_and_resize.cpp crop_and_resize_problem.cpp grid_sample.cpp
          image_scale.cpp resize.cpp scale_node.cpp upsampling_call.cpp upsampling_node.cpp upsampling_problem.cpp
          upsampling_taps.cpp
  CPU crop_and_resize_cpu.cpp grid_sample_cpu.cpp upsampling_rows.cpp
  CUDA crop_and_resize_cuda.cu grid_sample_cuda.cu lanczos_cuda.cu upsampling_cuda.cu upsampling_tiles_cuda.cu
  CONFORM grid_sample_conform.cpp grid_sample_reference.cpp image_scale_conform.cpp upsampling_reference_call.cpp
  TESTS crop_and_resize_test.cpp grid_sample_test.cpp image_scale_test.cpp resize_test.cpp upsampling_test.cpp)
unmetal_family(convolution
  HEADERS convolution_node.hpp convolution_transpose.hpp fully_connected.hpp kernel_with_weights.hpp
  SOURCES convolution_choice.cpp convolution_node.cpp convolution_plan_file.cpp convolution_transpose.cpp
          convolution_update.cpp convolution_weights.cpp fully_connected.cpp kernel_with_weights.cpp sub_pixel_convolution.cpp
  CPU convolution_depthwise.cpp convolution_direct.cpp convolution_matmul.cpp convolution_onednn.cpp convolution_onednn_part.cpp
      convolution_parts.cpp convolution_slices.cpp convolution_staging.cpp convolution_weights_reorder.cpp
  CUDA convolution_cuda.cpp convolution_cudnn_cuda.cpp convolution_cudnn_graph_cuda.cpp convolution_direct_cuda.cu
       convolution_matmul_cuda.cpp convolution_staging_cuda.cu convolution_tensor_cores_cuda.cu
       convolution_tiled_cuda.cu convolution_timing_cuda.cpp
  CONFORM convolution_reference_call.cpp sub_pixel_convolution_conform.cpp
  TESTS convolution_bfloat16_test.cpp convolution_candidates_test.cpp convolution_choice_test.cpp convolution_depthwise_test.cpp
        convolution_gradient_test.cpp convolution_options_test.cpp convolution_parts_test.cpp
        convolution_plan_file_test.cpp convolution_property_test.cpp convolution_test.cpp
        convolution_transpose_test.cpp convolution_weights_test.cpp fully_connected_test.cpp
        sub_pixel_convolution_test.cpp)
unmetal_family(batch_normalization
  HEADERS batch_normalization_node.hpp matrix_batch_normalization.hpp matrix_neuron.hpp
  SOURCES batch_normalization_gradient_call.cpp batch_normalization_node.cpp batch_normalization_ranks.cpp
          batch_normalization_update.cpp matrix_batch_normalization.cpp matrix_columns.cpp matrix_neuron.cpp
  CPU statistics_merge_cpu.cpp
  CUDA batch_normalization_cuda.cu statistics_merge_cuda.cu
  CONFORM batch_normalization_reference_call.cpp matrix_columns_conform.cpp statistics_merge_conform.cpp
  TESTS batch_normalization_gradient_test.cpp batch_normalization_ranks_test.cpp batch_normalization_test.cpp
        matrix_batch_normalization_test.cpp matrix_neuron_test.cpp)
unmetal_family(instance_normalization
  HEADERS group_normalization.hpp instance_normalization_node.hpp
  SOURCES group_normalization.cpp image_normalization_update.cpp instance_normalization_node.cpp
  CUDA instance_normalization_cuda.cu
  CONFORM instance_normalization_reference_call.cpp
  TESTS group_normalization_test.cpp instance_normalization_test.cpp)
unmetal_family(normalization
  HEADERS normalization_node.hpp
  SOURCES check/normalization_reference.cpp normalization_node.cpp normalization_problem.cpp
  CPU normalization_channels.cpp normalization_window_plan.cpp normalization_window_rows.cpp
  CUDA normalization_channels_cuda.cu normalization_cuda.cu normalization_pixels_cuda.cu normalization_sliding_cuda.cu
  CONFORM normalization_reference_call.cpp
  TESTS normalization_test.cpp)
unmetal_family(arithmetic
  HEADERS arithmetic_node.hpp compare.hpp
  SOURCES arithmetic_gradient.cpp arithmetic_node.cpp compare.cpp
  CPU arithmetic_vectors.cpp
  CUDA arithmetic_cuda.cu
  CONFORM arithmetic_reference_call.cpp
  TESTS arithmetic_test.cpp compare_test.cpp)
unmetal_family(concatenation
  HEADERS concatenation_node.hpp
  SOURCES concatenation_node.cpp
  CUDA concatenation_cuda.cu
  CONFORM concatenation_reference_call.cpp
  TESTS concatenation_test.cpp)
unmetal_family(neuron
  HEADERS neuron_node.hpp
  SOURCES neuron_node.cpp
  CUDA neuron_cuda.cu
  CONFORM neuron_reference_call.cpp
  TESTS neuron_test.cpp)
unmetal_family(reduction
  HEADERS reduce_binary.hpp reduction_node.hpp reduction_operation.hpp
  SOURCES reduce_binary.cpp reduction_node.cpp
  CPU reduce_binary_cpu.cpp
  CUDA reduce_binary_cuda.cu reduction_cuda.cu
  CONFORM reduce_binary_conform.cpp reduce_binary_reference.cpp reduction_reference_call.cpp
  TESTS reduce_binary_test.cpp reduction_test.cpp)
unmetal_family(reshape
  HEADERS pad.hpp reshape_node.hpp
  SOURCES pad.cpp reshape_node.cpp
  CUDA reshape_cuda.cu
  CONFORM reshape_reference_call.cpp
  TESTS pad_test.cpp reshape_test.cpp)
unmetal_family(gather
  CUDA gather_cuda.cu
  TESTS gather_test.cpp)
unmetal_family(gram_matrix
  HEADERS gram_matrix_node.hpp
  SOURCES gram_matrix_node.cpp
  CUDA gram_matrix_cuda.cu
  CONFORM gram_matrix_reference_call.cpp
  TESTS gram_matrix_test.cpp)
unmetal_family(softmax
  HEADERS matrix_softmax.hpp
  SOURCES matrix_softmax.cpp
  CUDA softmax_cuda.cu
  CONFORM softmax_reference_call.cpp
  TESTS matrix_softmax_test.cpp softmax_test.cpp)
unmetal_family(dropout
  CUDA dropout_cuda.cu
  CONFORM dropout_reference_call.cpp
  TESTS dropout_test.cpp)
unmetal_family(loss
  HEADERS forward_loss.hpp loss_descriptor.hpp loss_node.hpp yolo_loss.hpp yolo_loss_descriptor.hpp yolo_loss_node.hpp
  SOURCES forward_loss.cpp loss_call.cpp loss_labels.cpp loss_node.cpp yolo_loss.cpp yolo_loss_node.cpp
          yolo_loss_problem.cpp
  CPU yolo_loss_cpu.cpp
  CUDA loss_cuda.cu yolo_loss_cuda.cu
  CONFORM loss_reference_call.cpp yolo_loss_conform.cpp yolo_loss_reference.cpp yolo_loss_reference_call.cpp
  TESTS forward_loss_test.cpp loss_labels_test.cpp loss_test.cpp yolo_loss_test.cpp)
unmetal_family(optimizer
  HEADERS optimizer_descriptor.hpp
  SOURCES combined_updates.cpp optimizer_coding.cpp optimizer_kinds.cpp
  CPU gradient_norm_cpu.cpp
  CUDA gradient_norm_cuda.cu optimizer_cuda.cu
  TESTS combined_updates_test.cpp gradient_norm_test.cpp optimizer_batch_normalization_test.cpp
        optimizer_convolution_test.cpp optimizer_image_normalization_test.cpp optimizer_matrix_test.cpp
        optimizer_test.cpp optimizer_weight_decay_test.cpp)
unmetal_family(matrix
  HEADERS matrix_copy.hpp matrix_fully_connected.hpp matrix_image_copy.hpp matrix_random.hpp matrix_sum.hpp
  SOURCES matrix_copy.cpp matrix_copy_coding.cpp matrix_fully_connected.cpp matrix_image_copy.cpp matrix_product.cpp
          matrix_random.cpp matrix_random_rule.cpp matrix_sum.cpp
  CPU matrix_copy_cpu.cpp matrix_image_copy_cpu.cpp matrix_random_cpu.cpp matrix_term_cpu.cpp
  CUDA matrix_copy_cuda.cu matrix_cublaslt_cuda.cpp matrix_cuda.cu matrix_image_copy_cuda.cu matrix_random_cuda.cu
       matrix_term_cuda.cu
  CONFORM matrix_layers_conform.cpp matrix_layers_reference.cpp matrix_random_reference.cpp
  TESTS matrix_copy_test.cpp matrix_fully_connected_test.cpp matrix_property_test.cpp matrix_random_test.cpp
        matrix_sum_test.cpp matrix_test.cpp)

unmetal_property_tests(convolution_tests matrix_tests)
